-- Stores notes and positions of the relay between two sites, if they are still those of this relay. Returns 1, or 0 if
-- Redis has lost them, or another relay has taken over.
--
-- KEYS: the hash of the other site, the hash of positions. ARGV: the identity of the relay, how many of the following
-- pairs of a field and a value are notes; the others are positions.
local site, places = KEYS[1], KEYS[2]
if redis.call('HGET', site, 'relay') ~= ARGV[1] then return 0 end
local notes = 2 + 2 * tonumber(ARGV[2])
for at = 3, #ARGV, 2 do
    redis.call('HSET', at <= notes and site or places, ARGV[at], ARGV[at + 1])
end
return 1
