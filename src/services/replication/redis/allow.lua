-- Gives out visits of a link that may be followed only so often; see src/services/allowances.rs.
--
-- KEYS: how many were given out. ARGV: the maximum, how many were given out as far as the node knows, how many clients
-- wait there, the most of one share, for how many milliseconds the number is kept.
local max, known, waiting, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

-- Redis may have lost what a node still knows.
local taken = math.max(tonumber(redis.call('GET', KEYS[1]) or '0') or 0, known)
local rest = math.max(max - taken, 0)
-- A small part of what is left, so that the last visits are not with nodes that nobody asks; more for those who wait.
local given = math.max(math.floor(rest / 8), math.min(waiting, math.floor(rest / 2)), 1)
given = math.min(given, most, rest)
redis.call('SET', KEYS[1], string.format('%.0f', taken + given), 'PX', ARGV[5])
return {given, taken + given}
