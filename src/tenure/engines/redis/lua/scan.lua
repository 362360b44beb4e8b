-- uses: seen
-- Keys between two bounds with their values, in order, up to about so many bytes. ARGV: seen, store, from, to, limit, bytes, 'up' or 'down'
local from, limit, left = ARGV[3], tonumber(ARGV[5]), tonumber(ARGV[6])
local range = ARGV[7] == 'up' and 'ZRANGEBYLEX' or 'ZREVRANGEBYLEX'
local found = {}
repeat
    local keys = redis.call(range, P .. 's:' .. ARGV[2], from, ARGV[4], 'LIMIT', 0, math.min(100, limit - #found / 2))
    for _, key in ipairs(keys) do
        local value = redis.call('GET', P .. 'v:' .. ARGV[2] .. ':' .. key)
        if value and left > 0 then
            found[#found + 1] = key
            found[#found + 1] = value
            left = left - #value
        end
        from = '(' .. key
    end
until left <= 0 or #found / 2 >= limit or #keys == 0
return {0, found}
