-- uses: seen time; writes
-- Write a value (v), unless a higher fence (f) has written its key: {_} or {_, generation, delivery}. The index (s) is for list().
-- Values whose ttl ended leave by themselves; `t` says when, so that each put with a ttl takes two of them from the index.
-- ARGV: seen, store, key, value, ttl, generation, delivery
local name, key, ttl = ARGV[2], ARGV[3], tonumber(ARGV[5])
local v, f = P .. 'v:' .. name .. ':' .. key, P .. 'f:' .. name .. ':' .. key
local fence = redis.call('GET', f)
if ARGV[6] ~= '' then
    if fence then
        local g, d = string.match(fence, '^(%d+) (%d+)$')
        g, d = tonumber(g) - tonumber(ARGV[6]), tonumber(d) - tonumber(ARGV[7])
        if g > 0 or (g == 0 and d > 0) then
            return {0, string.match(fence, '^(%d+) (%d+)$')}
        end
    end
    fence = ARGV[6] .. ' ' .. ARGV[7]
end
if ttl then
    redis.call('SET', v, ARGV[4], 'PX', math.max(1, math.ceil(ttl / 1000)))
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', P .. 't', '-inf', now - 1000000, 'LIMIT', 0, 2)) do
        local store, old = string.match(member, '^([^:]*):(.*)$')
        if redis.call('EXISTS', P .. 'v:' .. member) == 0 then
            redis.call('ZREM', P .. 's:' .. store, old)
        end
        redis.call('ZREM', P .. 't', member)
    end
    redis.call('ZADD', P .. 't', now + ttl, name .. ':' .. key)
else
    redis.call('SET', v, ARGV[4])
    redis.call('ZREM', P .. 't', name .. ':' .. key)
end
if fence then
    redis.call('SET', f, fence)
    if ttl then
        redis.call('EXPIRE', f, math.ceil(ttl / 1000000) + {memory})
    end
end
redis.call('ZADD', P .. 's:' .. name, 0, key)
return {wrote()}
