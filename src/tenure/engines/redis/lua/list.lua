-- uses: seen; writes
-- Keys between two bounds, in order; what has expired is taken from the index on the way. ARGV: seen, store, from, to, limit
local s, from, limit = P .. 's:' .. ARGV[2], ARGV[3], tonumber(ARGV[5])
local found, gone = {}, 0
repeat
    local keys = redis.call('ZRANGEBYLEX', s, from, ARGV[4], 'LIMIT', 0, limit - #found)
    for _, key in ipairs(keys) do
        if redis.call('EXISTS', P .. 'v:' .. ARGV[2] .. ':' .. key) == 1 then
            found[#found + 1] = key
        else
            redis.call('ZREM', s, key)
            gone = gone + 1
        end
        from = '(' .. key
    end
until #found == limit or #keys == 0
return {gone > 0 and wrote() or 0, found}
