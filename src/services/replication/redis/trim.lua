-- Removes the entries of a stream that are older than the retention, but keeps the last one of them: it is the position
-- of each node that had read the stream to its end then. A test compares this with
-- crates/model/src/replication/retention.rs.
--
-- KEYS: the stream. ARGV: the milliseconds for which entries are kept.
local time = redis.call('TIME')
local oldest = math.max(time[1] * 1000 + math.floor(time[2] / 1000) - tonumber(ARGV[1]), 0)
local first = redis.call('XREVRANGE', KEYS[1], string.format('%.0f', oldest), '-', 'COUNT', 1)
if not first[1] then return 0 end
return redis.call('XTRIM', KEYS[1], 'MINID', first[1][1])
