-- Takes a report of the granted visits that a node knows of; see src/services/allowances/reports.rs.
--
-- KEYS: the ledger of the partition, then the number of granted visits of each link. ARGV: the node, its epoch, a random
-- number, the milliseconds for which numbers are kept, 1 in the last part of a report or 0, 1 if the node has heard of all live
-- nodes since the epoch began or 0, the other nodes that it knows to hold grants, each on a line, then the granted visits of
-- each link.
--
-- Returns the epoch of this server, and 1 if the node has reported to it. With another epoch than that of the node, it
-- changes no number.
local ledger, node, known = KEYS[1], 'n:' .. ARGV[1], ARGV[2]

local epoch = enter_epoch(ledger, known, ARGV[3])
if epoch ~= known then return {epoch, 0} end
for at = 2, #KEYS do
    local number = tonumber(redis.call('GET', KEYS[at]) or '0') or 0
    number = math.max(number, tonumber(ARGV[at + 6]))
    redis.call('SET', KEYS[at], string.format('%.0f', number), 'PX', ARGV[4])
end
-- Once the node has reported, each part replaces the names of the others: it may count one of them as lost by now.
if ARGV[5] == '1' or redis.call('HEXISTS', ledger, node) == 1 then redis.call('HSET', ledger, node, ARGV[7]) end
local is_reported = redis.call('HEXISTS', ledger, node)
if is_reported == 1 and ARGV[6] == '1' then
    local others = {}
    for other in string.gmatch(ARGV[7], '[^\n]+') do others[#others + 1] = other end
    missing_report(ledger, others)
end
return {epoch, is_reported}
