-- Removes entries from a stream, and writes the other ones once more under their IDs. Redis only marks removed entries: their
-- bytes stay in its memory, in dumps and in new replicas until all entries of their block are removed.
--
-- KEYS: the stream. ARGV: the largest number of entries that are written once more, then the IDs of the entries to remove.
-- Returns 0 if more entries are left than that, so that bytes of removed ones stay; 1 otherwise.
local stream = KEYS[1]
if redis.call('EXISTS', stream) == 0 then return 1 end
for at = 2, #ARGV do redis.call('XDEL', stream, ARGV[at]) end
if redis.call('XLEN', stream) > tonumber(ARGV[1]) then return 0 end
local last = '0-0'
local info = redis.call('XINFO', 'STREAM', stream)
for at = 1, #info, 2 do
    if info[at] == 'last-generated-id' then last = info[at + 1] end
end
local kept_ms = redis.call('PTTL', stream)
local entries = redis.call('XRANGE', stream, '-', '+')
redis.call('DEL', stream)
for _, entry in ipairs(entries) do redis.call('XADD', stream, entry[1], unpack(entry[2])) end
-- The next entry must get a later ID than all earlier ones, also if the last of them was removed.
if last ~= '0-0' and (#entries == 0 or entries[#entries][1] ~= last) then
    redis.call('XADD', stream, last, 'c', '')
    redis.call('XDEL', stream, last)
end
if kept_ms > 0 then redis.call('PEXPIRE', stream, kept_ms) end
return 1
