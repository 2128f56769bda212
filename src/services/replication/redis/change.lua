-- Changes the state of one code, and appends the change to the stream of its partition: both or neither.
--
-- KEYS: the state of the code, the stream. ARGV: the request (claim, remove, expire, offer or replace), the code, a
-- state, about how many entries the stream keeps, for an expiry or a replacement the beginning of the state that expires
-- or is replaced, the state of the asking node or nothing, and the milliseconds for which the state is kept, or 0 for
-- forever. A test compares the rule for conflicts with crates/model/src/replication/rules.rs and sites.rs beside it.
--
-- A state is a letter (I and C for links, B and F for their tombstones: issued and chosen codes), 8 hexadecimal digits of
-- revision, 16 of claim, 8 of the number of changes, and a record, which this script ignores.
local state_key, stream = KEYS[1], KEYS[2]
local asked, code, new, keep, head = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local mine, kept_ms = ARGV[6], ARGV[7]
local old = redis.call('GET', state_key)

local function kind(state) return string.sub(state, 1, 1) end
local function rev(state) return tonumber(string.sub(state, 2, 9), 16) end
local function claim(state) return string.sub(state, 10, 25) end
-- A state from before links could be changed has no such number.
local function edit_of(state) return string.match(string.sub(state, 26, 33), '^%x+$') end
local function edit(state) return tonumber(edit_of(state) or '0', 16) end
local function whole(state)
    return edit_of(state) and state or string.sub(state, 1, 25) .. '00000000' .. string.sub(state, 26)
end
local function is_link(state) return kind(state) == 'I' or kind(state) == 'C' end
local function after(state) return math.min(rev(state) + 1, 4294967295) end
local function with_rev(state, number) return kind(state) .. string.format('%08x', number) .. string.sub(state, 10) end

-- The state may be from before states expired.
if old and kept_ms ~= '0' and redis.call('PTTL', state_key) == -1 then redis.call('PEXPIRE', state_key, kept_ms) end
-- A state that has not changed for long is only on the nodes. A tombstone may have come late, when a later state had
-- expired.
if mine ~= '' and not old then
    old = mine
elseif mine ~= '' and asked == 'claim' and kind(old) == 'F' and rev(old) < rev(mine) then
    if not is_link(mine) or claim(mine) ~= claim(old) then old = mine end
end

local function accepted(state)
    -- A link of another claim loses its code to this one, although a client may have got it: the entry has its version.
    local told = {'c', code, 'v', state}
    if old and is_link(old) and claim(old) ~= claim(state) then
        told[5], told[6] = 'o', string.sub(old, 2, 33)
    end
    -- Versions before slugs with slashes cannot read the code: by the capital letter, they compare the partition later.
    if string.find(code, '/', 1, true) then told[#told + 1] = 'S' told[#told + 1] = '1' end
    -- The stream first: if its key has another type, the script fails before anything has changed.
    local id = redis.call('XADD', stream, 'MAXLEN', '~', keep, '*', unpack(told))
    if kept_ms == '0' then
        redis.call('SET', state_key, state)
    else
        redis.call('SET', state_key, state, 'PX', kept_ms)
    end
    return {'accepted', state, id, state}
end

local function same()
    local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)
    -- The fields of an entry are c, v and perhaps o and S, in this order.
    return {'same', '', last[1] and last[1][1] or '', last[1] and last[1][2][4] or ''}
end

if asked == 'remove' or asked == 'expire' then
    if not old then return {'absent', '', '', ''} end
    if not is_link(old) then return {'held', old, '', ''} end
    -- The request may come late, when the code belongs to another link.
    if claim(old) ~= claim(new) then return {'held', old, '', ''} end
    -- The expiry may have changed, which the asking node does not know yet.
    if asked == 'expire' and string.sub(whole(old), 1, #head) ~= head then return {'held', old, '', ''} end
    local left = kind(old) == 'I' and 'B' or 'F'
    return accepted(left .. string.format('%08x', after(old)) .. claim(old) .. '00000000' .. string.sub(new, 34))
end
if not old then return accepted(new) end
if asked == 'replace' then
    -- The relay between sites, or a node that restores a lost state, has decided by a state that may have changed since.
    if string.sub(whole(old), 1, #head) ~= head then return {'held', old, '', ''} end
    return accepted(new)
end
if asked == 'claim' then
    -- The request comes twice, or late: the link exists already, or was removed.
    if claim(old) == claim(new) then
        if is_link(old) then return accepted(old) end
    elseif kind(old) == 'F' then
        return accepted(with_rev(new, math.max(after(old), rev(new))))
    end
elseif old == new then
    return same()
elseif claim(old) == claim(new) and is_link(old) ~= is_link(new) then
    if is_link(old) then return accepted(with_rev(new, math.max(rev(new), after(old)))) end
elseif rev(new) > rev(old) or (rev(new) == rev(old) and claim(new) == claim(old) and edit(new) > edit(old)) then
    return accepted(new)
end
return {'held', old, '', ''}
