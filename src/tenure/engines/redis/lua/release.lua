-- uses: seen time lost ring; writes
-- Give work back to where it came from, the front; the delivery does not count. One that had started keeps its number, and is
-- forgiven. ARGV: seen, mailbox, id, token
local mailbox, id = ARGV[2], ARGV[3]
local why = lost(mailbox, id, ARGV[4])
if why then
    return {0, why}
end
local x = P .. 'x:' .. id
local row = redis.call('HMGET', x, 's', 'e')
if row[1] == '2' then
    redis.call('HINCRBY', x, 'f', 1)
else
    redis.call('HINCRBY', x, 'd', -1)
end
redis.call('HDEL', x, 't', 's')
redis.call('ZREM', P .. 'h:' .. mailbox, id)
redis.call('ZADD', P .. 'q:' .. mailbox, row[2], id)
ring_mailbox(mailbox)
return {wrote()}
