-- Give a key to a new message, which replaces the one before. Nil and the inherited checkpoint; or the generation that is in
-- the way, and whether the key was revoked.
local function accept(mailbox, key, generation, id)
    local k = P .. 'k:' .. mailbox .. ':' .. key
    local row = redis.call('HMGET', k, 'g', 'x', 'r')
    local checkpoint = false
    if row[1] then
        if row[3] or tonumber(row[1]) >= tonumber(generation) then
            return row[1], row[3] and 1 or 0
        end
        local old = row[2]
        if redis.call('ZREM', P .. 'q:' .. mailbox, old) + redis.call('ZREM', P .. 'h:' .. mailbox, old) > 0 then
            checkpoint = redis.call('HGET', P .. 'x:' .. old, 'c')
            redis.call('DEL', P .. 'x:' .. old)
        else
            checkpoint = redis.call('HGET', k, 'c')
        end
        redis.call('HDEL', k, 'c')
        redis.call('PERSIST', k)
    end
    redis.call('HSET', k, 'g', generation, 'x', id)
    return nil, checkpoint
end
