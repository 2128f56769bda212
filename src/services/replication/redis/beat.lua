-- A node's heartbeat. Reports the counter values that the node has seen, and returns the highest ones of all nodes.
--
-- KEYS: the sorted set of heartbeats, the hash of nodes, the hash of the code space.
-- ARGV: the node, its description, its fingerprint of the secret key, then pairs of a length and the highest value seen.
local beats, nodes, space = KEYS[1], KEYS[2], KEYS[3]
local node, about, fingerprint = ARGV[1], ARGV[2], ARGV[3]

redis.call('HSETNX', space, 'fingerprint', fingerprint)
local theirs = redis.call('HGET', space, 'fingerprint')
if theirs ~= fingerprint then return {theirs, {}, {}, {}} end

local time = redis.call('TIME')
redis.call('ZADD', beats, string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)), node)
redis.call('HSET', nodes, node, about)
local floors = {}
for at = 4, #ARGV, 2 do
    local field = 'floor:' .. ARGV[at]
    local floor = math.max(tonumber(redis.call('HGET', space, field) or '0'), tonumber(ARGV[at + 1]))
    if floor > 0 then redis.call('HSET', space, field, string.format('%.0f', floor)) end
    floors[#floors + 1] = ARGV[at]
    floors[#floors + 1] = string.format('%.0f', floor)
end
return {
    theirs,
    redis.call('ZRANGE', beats, 0, -1, 'WITHSCORES'),
    redis.call('HGETALL', nodes),
    floors,
}
