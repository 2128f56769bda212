-- Leases values of the counter of one code length. A test compares this with crates/model/src/replication/lease.rs.
--
-- KEYS: the counter, the hash of the code space, the hash of leases, the hash of the other site. ARGV: the length, how
-- many values, the highest value that the node has seen, the margin, the node, the number of the site among two (0 or 1,
-- or nothing for a fleet of one site), and the number of values in a block of a site.
local counter, space, leases, other = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local length, want, seen, margin, node = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local site, block = tonumber(ARGV[6]), tonumber(ARGV[7])

local function whole(number) return string.format('%.0f', number) end

local info = redis.pcall('INFO', 'server')
local server = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or 'unknown'
local floor, damage = read_floor(space, length)
if not floor then return damage end
local known = math.max(seen, floor)
local start = redis.call('HGET', other, 'start:' .. length)
local before = redis.call('HGET', space, 'server:' .. length) or ''
if start and not site and not redis.call('HGET', other, 'given_up') then
    -- Half of the values belong to the other site.
    return redis.error_reply('ERR this fleet has two sites, but fleet.site is not set on this node')
end
if site then
    -- A damaged start is not known either. The relay replaces it.
    if before == '' and not tonumber(start or '') then
        -- The other site may have leased values of these blocks before there were two sites, and a node that is a copy
        -- has not seen the last of them.
        return redis.error_reply('ERR the code counter of the other site is not known yet')
    end
    -- A node with the settings of the other site would lease its values.
    local share = redis.call('HGET', space, 'share')
    if share and tonumber(share) ~= site then
        return redis.error_reply('ERR fleet.site or fleet.other_site of this node differs from those of its site')
    end
    redis.call('HSET', space, 'share', whole(site))
end
local value = tonumber(redis.call('GET', counter) or '0') or 0
local mended = math.max(known - value, 0)
local next_value = math.max(value, known, tonumber(start or '0') or 0)
local moved = before ~= '' and before ~= server
if moved or (before == '' and known > 0) then next_value = next_value + margin end
if site then
    -- All values of a lease are in one block of this site.
    local current = math.floor(next_value / block)
    if current % 2 ~= site or math.floor((next_value + tonumber(want) - 1) / block) ~= current then
        local following = current + 1
        if following % 2 ~= site then following = following + 1 end
        next_value = following * block
    end
end
if next_value ~= value then redis.call('SET', counter, whole(next_value)) end
redis.call('INCRBY', counter, want)
local behind = next_value + tonumber(want)
redis.call('HSET', space, 'floor:' .. length, whole(behind), 'server:' .. length, server)
redis.call('HSET', leases, length .. ':' .. whole(next_value), want .. ':' .. node)
return {whole(next_value), whole(mended), moved and 1 or 0}
