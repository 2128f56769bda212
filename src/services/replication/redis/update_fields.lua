-- Sets fields of a hash that still have the values which the caller has read. The others stay, because another node has
-- changed them meanwhile. Returns the number of the others.
--
-- KEYS: the hash. ARGV: for each field its name, the value that was read, and the new value. An empty text stands for no
-- field.
local others = 0
for at = 1, #ARGV, 3 do
    if (redis.call('HGET', KEYS[1], ARGV[at]) or '') ~= ARGV[at + 1] then
        others = others + 1
    elseif ARGV[at + 2] == '' then
        redis.call('HDEL', KEYS[1], ARGV[at])
    else
        redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 2])
    end
end
return others
