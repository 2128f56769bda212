-- Takes or keeps the lease of the relay between two sites. Returns 1 if the node has it, else 0.
--
-- KEYS: the lease. ARGV: the node, the milliseconds for which the lease lasts.
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
