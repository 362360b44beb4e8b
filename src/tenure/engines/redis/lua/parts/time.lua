-- The server's time in microseconds since 1970: exact in a double until the year 2255.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
-- Never concatenate a number: Lua writes 14 digits of it.
local function int(number)
    return string.format('%.0f', number)
end
