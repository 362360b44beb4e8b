-- Whether a higher fence than this one has written the key.
local function outfenced(fence, generation, delivery)
    if not fence then
        return false
    end
    local g, d = string.match(fence, '^(%d+) (%d+)$')
    g, d = tonumber(g) - tonumber(generation), tonumber(d) - tonumber(delivery)
    return g > 0 or (g == 0 and d > 0)
end
-- Write a value (v) and its fence (f). The index (s) is for list() and scan(). Values whose ttl ended leave by themselves; `t` says when, so
-- that each write with a ttl takes two of them from the index.
local function keep(name, key, value, ttl, fence)
    local v, f = P .. 'v:' .. name .. ':' .. key, P .. 'f:' .. name .. ':' .. key
    if ttl then
        redis.call('SET', v, value, 'PX', math.max(1, math.ceil(ttl / 1000)))
        for _, member in ipairs(redis.call('ZRANGEBYSCORE', P .. 't', '-inf', now - 1000000, 'LIMIT', 0, 2)) do
            local store, old = string.match(member, '^([^:]*):(.*)$')
            if redis.call('EXISTS', P .. 'v:' .. member) == 0 then
                redis.call('ZREM', P .. 's:' .. store, old)
            end
            redis.call('ZREM', P .. 't', member)
        end
        redis.call('ZADD', P .. 't', now + ttl, name .. ':' .. key)
    else
        redis.call('SET', v, value)
        redis.call('ZREM', P .. 't', name .. ':' .. key)
    end
    if fence then
        redis.call('SET', f, fence)
        if ttl then
            redis.call('EXPIRE', f, math.ceil(ttl / 1000000) + {memory})
        end
    end
    redis.call('ZADD', P .. 's:' .. name, 0, key)
end
