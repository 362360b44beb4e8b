-- uses: seen time ring; writes
-- Give back what claims took whose answer never arrived: nobody has these deliveries. Looks at everything that is held now,
-- which is more than a step, and happens only after a lost connection. ARGV: seen, mailbox, tokens
local q, h = P .. 'q:' .. ARGV[2], P .. 'h:' .. ARGV[2]
local given = 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', h, '(' .. int(now), '+inf')) do
    local x = P .. 'x:' .. id
    local row = redis.call('HMGET', x, 't', 's', 'e')
    for n = 3, #ARGV do
        if row[1] == ARGV[n] and row[2] ~= '2' then
            redis.call('HDEL', x, 't', 's')
            redis.call('HINCRBY', x, 'd', -1)
            redis.call('ZREM', h, id)
            redis.call('ZADD', q, row[3], id)
            given = given + 1
        end
    end
end
if given > 0 then
    ring('m:' .. ARGV[2])
    return {wrote(), given}
end
return {0, given}
