-- uses: seen time ring; writes
-- Give back what claims took whose answer never arrived: nobody has these deliveries. Looks at everything that is held now,
-- which is more than a step, and happens only after a lost connection. ARGV: seen, number of mailboxes, mailboxes, tokens
local given, names = 0, tonumber(ARGV[2])
for m = 3, names + 2 do
    local q, h, before = P .. 'q:' .. ARGV[m], P .. 'h:' .. ARGV[m], given
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', h, '(' .. int(now), '+inf')) do
        local x = P .. 'x:' .. id
        local row = redis.call('HMGET', x, 't', 's', 'e')
        for n = names + 3, #ARGV do
            if row[1] == ARGV[n] and row[2] ~= '2' then
                redis.call('HDEL', x, 't', 's')
                redis.call('HINCRBY', x, 'd', -1)
                redis.call('ZREM', h, id)
                redis.call('ZADD', q, row[3], id)
                given = given + 1
            end
        end
    end
    if given > before then
        ring_mailbox(ARGV[m])
    end
end
return {given > 0 and wrote() or 0, given}
