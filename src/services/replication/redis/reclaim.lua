-- Takes over the leases of a lost node, if its heartbeat has not changed since the caller read it.
--
-- KEYS: the lock, the sorted set of heartbeats, the hash of nodes, the hash of leases.
-- ARGV: the node that takes (owner of the lock), how long the lock may be held (milliseconds), the node that has gone,
-- the time of the heartbeat that was seen, and its description. After a step back of the clock of Redis, two heartbeats
-- can have the same time, but each description has a number of its own.
local lock, beats, nodes, leases = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local me, hold, gone, beat, about = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

if not redis.call('SET', lock, me, 'NX', 'PX', hold) and redis.call('GET', lock) ~= me then return {} end
if redis.call('ZSCORE', beats, gone) ~= beat then return {} end
if (redis.call('HGET', nodes, gone) or '') ~= about then return {} end
local taken = {}
local all = redis.call('HGETALL', leases)
for at = 1, #all, 2 do
    local want, node = string.match(all[at + 1], '^(%d+):(.*)$')
    if node == gone then
        redis.call('HSET', leases, all[at], want .. ':' .. me)
        taken[#taken + 1] = all[at]
        taken[#taken + 1] = want
    end
end
redis.call('ZREM', beats, gone)
redis.call('HDEL', nodes, gone)
if redis.call('GET', lock) == me then redis.call('DEL', lock) end
return taken
