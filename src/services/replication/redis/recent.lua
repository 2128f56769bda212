-- Returns the code that new creates of a destination get, and restarts its window.
--
-- KEYS: the entry of the URL. ARGV: the code that the asking node would use, the window in milliseconds, and the
-- content of the entry if that node found it to be wrong, or nothing. If several nodes ask at once, the first one
-- decides, and only the first that notices a wrong entry replaces it. The code may not have a link yet: the node that
-- made the entry creates it afterwards.
local mine, window, wrong = ARGV[1], ARGV[2], ARGV[3]
local there = redis.call('GET', KEYS[1])
if there and there ~= wrong then
    redis.call('PEXPIRE', KEYS[1], window)
    return there
end
redis.call('SET', KEYS[1], mine, 'PX', window)
return mine
