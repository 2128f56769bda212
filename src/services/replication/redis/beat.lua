-- A node's heartbeat. Reports the counter values that the node has seen, and returns the highest ones of all nodes. Also
-- returns the time at which states began to expire in Redis, which all nodes remember: see
-- crates/model/src/replication/retention.rs; and the description that the one of this heartbeat replaces, by which a node
-- finds another process with its name: see crates/model/src/replication/twins.rs. The first heartbeat to an empty Redis
-- gives it an epoch, by which nodes notice that it has lost its data: see
-- crates/model/src/replication/known_members.rs.
--
-- KEYS: the sorted set of heartbeats, the hash of nodes, the hash of the code space.
-- ARGV: the node, its description, its fingerprint of the secret key, the time at which states began to expire as far as
-- it knows (or 0), 1 if it lets them expire from now on or 2 if Redis is the home of its links, the epoch of an empty Redis,
-- then pairs of a length and the highest value seen.
local beats, nodes, space = KEYS[1], KEYS[2], KEYS[3]
local node, about, fingerprint = ARGV[1], ARGV[2], ARGV[3]
local known, expires, is_home, epoch = tonumber(ARGV[4]), ARGV[5] == '1', ARGV[5] == '2', ARGV[6]

redis.call('HSETNX', space, 'fingerprint', fingerprint)
local theirs = redis.call('HGET', space, 'fingerprint')
if theirs ~= fingerprint then return {theirs, {}, {}, {}, '0', '', ''} end
-- A node that did not hear the value of a length would take codes that others have leased for unknown ones.
local highest = {}
for at = 7, #ARGV, 2 do
    local floor, damage = read_floor(space, ARGV[at])
    if not floor then return damage end
    highest[ARGV[at]] = math.max(floor, tonumber(ARGV[at + 1]))
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', beats, string.format('%.0f', now), node)
local replaced = redis.call('HGET', nodes, node) or ''
redis.call('HSET', nodes, node, about)
local since = tonumber(redis.call('HGET', space, 'expiring') or '0') or 0
local before = since
if known > 0 and (since == 0 or known < since) then since = known end
-- A node with another setting must not let the only copy of the links expire. A field keeps that, also while all nodes
-- without a copy are away.
if since == 0 and is_home then redis.call('HSET', space, 'home', '1') end
if since == 0 and expires and redis.call('HEXISTS', space, 'home') == 0 then since = now end
if since ~= before then redis.call('HSET', space, 'expiring', string.format('%.0f', since)) end
redis.call('HSETNX', space, 'epoch', epoch)
local floors = {}
for at = 7, #ARGV, 2 do
    local floor = highest[ARGV[at]]
    if floor > 0 then redis.call('HSET', space, 'floor:' .. ARGV[at], string.format('%.0f', floor)) end
    floors[#floors + 1] = ARGV[at]
    floors[#floors + 1] = string.format('%.0f', floor)
end
return {
    theirs,
    redis.call('ZRANGE', beats, 0, -1, 'WITHSCORES'),
    redis.call('HGETALL', nodes),
    floors,
    string.format('%.0f', since),
    replaced,
    redis.call('HGET', space, 'epoch'),
}
