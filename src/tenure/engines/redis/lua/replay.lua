-- uses: seen time ring; writes
-- Put a dead letter back: {_, 1}; {_, 0} when there is none; {_, 2, key, generation, current, revoked} when its key has moved on.
-- ARGV: seen, mailbox, id
local mailbox, id = ARGV[2], ARGV[3]
local x = P .. 'x:' .. id
if not redis.call('ZSCORE', P .. 'd:' .. mailbox, id) then
    return {0, 0}
end
local row = redis.call('HMGET', x, 'k', 'g', 'd')
if row[1] then
    local k, generation = P .. 'k:' .. mailbox .. ':' .. row[1], row[2] or '0'
    local key = redis.call('HMGET', k, 'g', 'x', 'r')
    if key[1] and (key[3] or tonumber(key[1]) > tonumber(generation) or key[2] ~= id) then
        return {0, 2, row[1], generation, key[1], key[3] and 1 or 0}
    end
    redis.call('HSET', k, 'g', generation, 'x', id)
    redis.call('HDEL', k, 'c')
    redis.call('PERSIST', k)
end
redis.call('ZREM', P .. 'd:' .. mailbox, id)
redis.call('HDEL', x, 'cause', 'reason', 'died')
redis.call('HSET', x, 'f', row[3] or 0)
redis.call('ZADD', P .. 'q:' .. mailbox, now, id)
ring_mailbox(mailbox)
return {wrote(), 1}
