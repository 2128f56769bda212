-- Grants a node visits of a link with `maxVisits`; see src/services/allowances.rs. A test compares this with
-- crates/model/src/visits/grants.rs.
--
-- KEYS: the number of granted visits, the ledger of the partition. ARGV: the maximum, the number of granted visits that
-- the node knows of, the number of clients that wait there, the largest share, the milliseconds for which the number is
-- kept, the node, its last epoch, a random number, and the other nodes that may hold grants.
--
-- Returns the visits, the number with them, and nothing; or -1, 0 and the node whose report is missing.
local max, known, waiting, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local ledger, node, epoch = KEYS[2], 'n:' .. ARGV[6], ARGV[7]

if enter_epoch(ledger, epoch, ARGV[8]) ~= epoch or redis.call('HEXISTS', ledger, node) == 0 then
    return {-1, 0, ARGV[6]}
end
local others = {}
for at = 9, #ARGV do others[#others + 1] = ARGV[at] end
local missing = missing_report(ledger, others)
if missing then return {-1, 0, missing} end

-- The node may know of visits from before the link had a maximum.
local taken = math.max(tonumber(redis.call('GET', KEYS[1]) or '0') or 0, known)
local rest = math.max(max - taken, 0)
-- A small part of the rest, so that idle nodes do not hold the last visits; more if clients wait.
local given = math.max(math.floor(rest / 8), math.min(waiting, math.floor(rest / 2)), 1)
given = math.min(given, most, rest)
redis.call('SET', KEYS[1], string.format('%.0f', taken + given), 'PX', ARGV[5])
return {given, taken + given, ''}
