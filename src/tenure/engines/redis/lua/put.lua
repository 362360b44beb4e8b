-- uses: seen time keep; writes
-- Write a value, unless a higher fence has written its key: {_} or {_, generation, delivery}.
-- ARGV: seen, store, key, value, ttl, generation, delivery
local fence = redis.call('GET', P .. 'f:' .. ARGV[2] .. ':' .. ARGV[3])
if ARGV[6] ~= '' then
    if outfenced(fence, ARGV[6], ARGV[7]) then
        return {0, string.match(fence, '^(%d+) (%d+)$')}
    end
    fence = ARGV[6] .. ' ' .. ARGV[7]
end
keep(ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), fence)
return {wrote()}
