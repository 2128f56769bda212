-- Writes some more entries of a stream to the copy that purge.lua has begun, under their IDs. Once the copy has all of
-- them, it takes the place of the stream. Several nodes may call this for one copy in turn. Entries that are added meanwhile
-- come last.
--
-- KEYS: the stream, its copy. ARGV: about how many entries and about how many bytes are written at most, the entries that
-- are read at once. Returns 0 if no copy is left, 1 if entries are left, 2 if the copy begins again.
local stream, copy, page_len = KEYS[1], KEYS[2], tonumber(ARGV[3])
if redis.call('EXISTS', copy) == 0 then return 0 end
if redis.call('EXISTS', stream) == 0 then
    redis.call('UNLINK', copy)
    return 0
end

local function last_id(key)
    local info = redis.call('XINFO', 'STREAM', key)
    for at = 1, #info, 2 do
        if info[at] == 'last-generated-id' then return info[at + 1] end
    end
end

local function newest(key)
    local entry = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
    return entry and entry[1]
end

local behind, entries_left, bytes_left = last_id(copy), tonumber(ARGV[1]), tonumber(ARGV[2])
local is_whole = false
while not is_whole and entries_left > 0 and bytes_left > 0 do
    local page = redis.call('XRANGE', stream, '(' .. behind, '+', 'COUNT', page_len)
    for _, entry in ipairs(page) do
        behind = entry[1]
        redis.call('XADD', copy, behind, unpack(entry[2]))
        for _, text in ipairs(entry[2]) do bytes_left = bytes_left - #text end
    end
    entries_left = entries_left - #page
    is_whole = #page < page_len
end
if not is_whole then return 1 end

-- The stream may have been trimmed since the copy began.
local first = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
if first then redis.call('XTRIM', copy, 'MINID', first[1]) else redis.call('XTRIM', copy, 'MAXLEN', 0) end
-- Nodes of an earlier version may have removed entries, or the copy may be of an earlier stream that Redis has lost.
if redis.call('XLEN', copy) ~= redis.call('XLEN', stream) or newest(copy) ~= newest(stream) then
    local kept_ms = redis.call('PTTL', copy)
    redis.call('UNLINK', copy)
    redis.call('XADD', copy, '0-1', 'c', '')
    redis.call('XDEL', copy, '0-1')
    if kept_ms > 0 then redis.call('PEXPIRE', copy, kept_ms) end
    return 2
end
-- The next entry must get a later ID than all earlier ones, also if the last of them was removed.
local last = last_id(stream)
if last ~= '0-0' and last ~= behind then
    redis.call('XADD', copy, last, 'c', '')
    redis.call('XDEL', copy, last)
end
local kept_ms = redis.call('PTTL', stream)
if kept_ms > 0 then redis.call('PEXPIRE', copy, kept_ms) else redis.call('PERSIST', copy) end
redis.call('UNLINK', stream)
redis.call('RENAME', copy, stream)
return 0
