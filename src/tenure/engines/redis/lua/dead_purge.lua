-- uses: seen; writes
-- Delete up to `most` dead letters. ARGV: seen, mailbox, most
local d, gone = P .. 'd:' .. ARGV[2], 0
for _, id in ipairs(redis.call('ZRANGE', d, 0, tonumber(ARGV[3]) - 1)) do
    redis.call('ZREM', d, id)
    redis.call('UNLINK', P .. 'x:' .. id)
    gone = gone + 1
end
return {wrote(), gone}
