-- uses: seen time lost remember ring hand post bury; writes
-- Give a message back after a delay; the delivery counts, and the last one that was allowed makes it a dead letter.
-- ARGV: seen, mailbox, id, token, delay, limit
local mailbox, id, limit = ARGV[2], ARGV[3], tonumber(ARGV[6])
local why = lost(mailbox, id, ARGV[4])
if why then
    return {0, why}
end
redis.call('ZREM', P .. 'h:' .. mailbox, id)
if limit then
    local row = redis.call('HMGET', P .. 'x:' .. id, 'd', 'f')
    local tries = tonumber(row[1]) - tonumber(row[2] or 0)
    if tries >= limit then
        bury(mailbox, id, 'deliveries', exhausted(tries, false))
        return {wrote()}
    end
end
redis.call('HDEL', P .. 'x:' .. id, 't', 's')
redis.call('ZADD', P .. 'q:' .. mailbox, now + tonumber(ARGV[5]), id)
ring_mailbox(mailbox)
return {wrote()}
