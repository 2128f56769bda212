-- Gives up the other site: nodes without a site may lease values from here on, all of them above those that the other site
-- may have leased. Returns 1, or 0 if it was given up before.
--
-- KEYS: the hash of the other site, the hash of the code space, then counters. ARGV: the name of the other site, then for
-- each counter its length and a value above all that the other site may have leased.
local other, space = KEYS[1], KEYS[2]
if redis.call('HGET', other, 'given_up') == ARGV[1] then return 0 end
local floors = {}
for at = 3, #KEYS do
    local floor, damage = read_floor(space, ARGV[2 * at - 4])
    if not floor then return damage end
    floors[at] = floor
end
for at = 3, #KEYS do
    local field, above = 'floor:' .. ARGV[2 * at - 4], tonumber(ARGV[2 * at - 3])
    local value = tonumber(redis.call('GET', KEYS[at]) or '0') or 0
    local raised = string.format('%.0f', math.max(value, floors[at], above))
    redis.call('SET', KEYS[at], raised)
    redis.call('HSET', space, field, raised)
end
-- A relay of the other site that returns takes this Redis for one without a site.
redis.call('HDEL', space, 'site')
redis.call('HSET', other, 'given_up', ARGV[1])
return 1
