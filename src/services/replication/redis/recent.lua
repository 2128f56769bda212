-- Says which code stands for a long URL now, and begins its window anew.
--
-- KEYS: the entry of the URL. ARGV: the code that the asking node would give, the window in milliseconds, and what the
-- entry holds if that was found to be wrong, or nothing. Of several nodes that ask at once the first one is heard; and an
-- entry that is wrong is replaced by the first who has noticed, and by no other. Whether the code has a link is not known
-- here: who made the entry may yet have to make the link.
local mine, window, wrong = ARGV[1], ARGV[2], ARGV[3]
local there = redis.call('GET', KEYS[1])
if there and there ~= wrong then
    redis.call('PEXPIRE', KEYS[1], window)
    return there
end
redis.call('SET', KEYS[1], mine, 'PX', window)
return mine
