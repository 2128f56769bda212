-- Leases values of the counter of one code length. A test compares this with crates/model/src/replication/lease.rs.
--
-- KEYS: the counter, the hash of the code space, the hash of leases. ARGV: the length, how many values, the highest
-- value that the node has seen, the margin, the node.
local counter, space, leases = KEYS[1], KEYS[2], KEYS[3]
local length, want, seen, margin, node = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]

local function whole(number) return string.format('%.0f', number) end

local info = redis.pcall('INFO', 'server')
local server = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or 'unknown'
local known = math.max(seen, tonumber(redis.call('HGET', space, 'floor:' .. length) or '0'))
local before = redis.call('HGET', space, 'server:' .. length) or ''
local value = tonumber(redis.call('GET', counter) or '0') or 0
local mended = math.max(known - value, 0)
local next_value = math.max(value, known)
local moved = before ~= '' and before ~= server
if moved or (before == '' and known > 0) then next_value = next_value + margin end
if next_value ~= value then redis.call('SET', counter, whole(next_value)) end
redis.call('INCRBY', counter, want)
local behind = next_value + tonumber(want)
redis.call('HSET', space, 'floor:' .. length, whole(behind), 'server:' .. length, server)
redis.call('HSET', leases, length .. ':' .. whole(next_value), want .. ':' .. node)
return {whole(next_value), whole(mended), moved and 1 or 0}
