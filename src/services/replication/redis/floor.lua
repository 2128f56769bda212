-- The beginning of scripts that read the highest known counter value of a code length. If this value is damaged, a script
-- changes nothing and returns an error: with a lower value, codes could be given twice.

-- Returns the value, or nil and the error.
local function read_floor(space, length)
    local field = 'floor:' .. length
    local text = redis.call('HGET', space, field)
    if not text then return 0 end
    -- `tonumber` also reads signs, fractions, exponents and hexadecimal digits.
    if #text <= 19 and string.match(text, '^%d+$') then return tonumber(text) end
    local shown = string.gsub(string.sub(text, 1, 40), '[^%w%p ]', '?')
    return nil, redis.error_reply(
        "ERR the field " .. field .. " of the hash " .. space .. " is damaged: " .. shown .. "; expected a whole number. "
            .. "While all nodes of the fleet run, type: redis-cli HDEL '" .. space .. "' " .. field
            .. ". The nodes then write it again from the values that they have seen"
    )
end

