-- uses: seen time
-- The deliveries that claims with these tokens have and hold: rows as in exchange, and the token. Looks at everything that is held now, which is
-- more than a step, and happens only when a claim is repeated. ARGV: seen, number of mailboxes, mailboxes, tokens
local rows, names = {}, tonumber(ARGV[2])
for n = 3, names + 2 do
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', P .. 'h:' .. ARGV[n], '(' .. int(now), '+inf')) do
        local row = redis.call('HMGET', P .. 'x:' .. id, 'd', 'f', 't', 'e', 'g', 'F', 'k', 'r', 'c', 'b')
        for t = names + 3, #ARGV do
            if row[3] == ARGV[t] then
                row[2], row[3], row[11], row[12], row[13] = tonumber(row[2] or 0), id, 0, ARGV[n], ARGV[t]
                row[1] = tonumber(row[1])
                row[14] = redis.call('ZSCORE', P .. 'h:' .. ARGV[n], id) - now
                rows[#rows + 1] = row
            end
        end
    end
end
return {0, rows}
