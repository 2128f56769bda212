-- Grants a node visits of a link with `maxVisits`; see src/services/allowances.rs.
--
-- KEYS: the number of granted visits. ARGV: the maximum, the number of granted visits that the node knows of, the
-- number of clients that wait there, the largest share, the milliseconds for which the number is kept.
local max, known, waiting, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

-- Redis may have lost grants that a node still knows of.
local taken = math.max(tonumber(redis.call('GET', KEYS[1]) or '0') or 0, known)
local rest = math.max(max - taken, 0)
-- A small part of the rest, so that idle nodes do not hold the last visits; more if clients wait.
local given = math.max(math.floor(rest / 8), math.min(waiting, math.floor(rest / 2)), 1)
given = math.min(given, most, rest)
redis.call('SET', KEYS[1], string.format('%.0f', taken + given), 'PX', ARGV[5])
return {given, taken + given}
