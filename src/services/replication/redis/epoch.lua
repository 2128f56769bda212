-- The beginning of scripts about granted visits, with the rules of `GrantLedger` in crates/model/src/visits/grants.rs.

-- Returns the epoch of the grants of this server. Begins another one if the server may lack grants, or if the node knows a
-- later epoch. `ledger` is the hash of the partition, `known` the last epoch of the node, `nonce` a random number.
local function enter_epoch(ledger, known, nonce)
    local function about(section, field)
        local info = redis.pcall('INFO', section)
        return type(info) == 'string' and string.match(info, field .. ':(%w+)') or 'unknown'
    end
    -- A restart changes the first part. A promotion changes the second one, also of a server that was a master before.
    local server = about('server', 'run_id') .. '/' .. about('replication', 'master_replid')
    local kept = redis.call('HMGET', ledger, 'epoch', 'server')
    local number = tonumber(string.match(kept[1] or '', '^(%d+)%.') or '0')
    local last = tonumber(string.match(known, '^(%d+)%.') or '0')
    if number > 0 and kept[2] == server and (kept[1] == known or number > last) then return kept[1] end
    local epoch = string.format('%.0f', math.max(number, last) + 1) .. '.' .. nonce
    redis.call('DEL', ledger)
    redis.call('HSET', ledger, 'epoch', epoch, 'server', server)
    return epoch
end

-- Returns a node whose report is missing among `others` and those that their reports name; nil if all have reported, which
-- completes the epoch.
local function missing_report(ledger, others)
    if redis.call('HEXISTS', ledger, 'complete') == 1 then return nil end
    for _, other in ipairs(others) do
        local named = redis.call('HGET', ledger, 'n:' .. other)
        if not named then return other end
        -- The asking node may have joined after the loss, and not have heard of one that is away since before.
        for far in string.gmatch(named, '[^\n]+') do
            if redis.call('HEXISTS', ledger, 'n:' .. far) == 0 then return far end
        end
    end
    redis.call('HSET', ledger, 'complete', '1')
    return nil
end
