-- uses: seen time keep; writes
-- Write many values, and remove those that say so ('0'); a key that a higher fence has written stays as it is.
-- ARGV: seen, store, ttl, generation, delivery, then key, '1' or '0', value of each
local name, ttl, fence = ARGV[2], tonumber(ARGV[3]), ARGV[4] .. ' ' .. ARGV[5]
for at = 6, #ARGV, 3 do
    local key, member = ARGV[at], name .. ':' .. ARGV[at]
    if not outfenced(redis.call('GET', P .. 'f:' .. member), ARGV[4], ARGV[5]) then
        if ARGV[at + 1] == '1' then
            keep(name, key, ARGV[at + 2], ttl, fence)
        else
            redis.call('UNLINK', P .. 'v:' .. member)
            redis.call('ZREM', P .. 's:' .. name, key)
            redis.call('ZREM', P .. 't', member)
            redis.call('SET', P .. 'f:' .. member, fence, 'EX', {memory})
        end
    end
end
return {wrote()}
