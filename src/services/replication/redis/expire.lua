-- Lets a state expire that was written before states expired.
--
-- KEYS: the state of a code. ARGV: the milliseconds for which it is kept.
if redis.call('PTTL', KEYS[1]) ~= -1 then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[1])
