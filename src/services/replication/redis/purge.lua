-- Removes entries from a stream, and begins a copy of the other ones. Redis only marks removed entries: their bytes stay
-- in its memory, in dumps and in new replicas until all entries of their block are removed. So rewrite.lua writes the other
-- entries to the copy, step by step, and puts it in the place of the stream. While a copy exists, the stream may have such
-- bytes.
--
-- KEYS: the stream, its copy. ARGV: the milliseconds for which an unfinished copy is kept, 1 to begin a copy even if no
-- entry is removed now, or 0, then the IDs of the entries to remove. Returns 1 if there is a copy to finish; 0 otherwise.
local stream, copy = KEYS[1], KEYS[2]
if redis.call('EXISTS', stream) == 0 then
    redis.call('UNLINK', copy)
    return 0
end
local removed = 0
for at = 3, #ARGV do removed = removed + redis.call('XDEL', stream, ARGV[at]) end
if removed > 0 or ARGV[2] == '1' then
    -- An earlier copy may have removed entries.
    redis.call('UNLINK', copy)
    redis.call('XADD', copy, '0-1', 'c', '')
    redis.call('XDEL', copy, '0-1')
    redis.call('PEXPIRE', copy, ARGV[1])
end
return redis.call('EXISTS', copy)
