-- uses: seen
-- Dead letters, oldest first, after the one with that id. ARGV: seen, mailbox, limit, after
local d = P .. 'd:' .. ARGV[2]
local after = redis.call('ZSCORE', d, ARGV[4])
local rows = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', d, after and '(' .. after or '-inf', '+inf', 'LIMIT', 0, ARGV[3])) do
    local row = redis.call('HMGET', P .. 'x:' .. id, 'cause', 'reason', 'died', 'e', 'd', 'g', 'k', 'r', 'c', 'b')
    row[11] = id
    rows[#rows + 1] = row
end
return {0, rows}
