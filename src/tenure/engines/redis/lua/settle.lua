-- uses: seen time lost remember ring hand post; writes
-- Answer and acknowledge: both or neither. ARGV: seen, mailbox, id, token, reply_to, body
local why = lost(ARGV[2], ARGV[3], ARGV[4])
if why then
    return {0, why}
end
redis.call('ZREM', P .. 'h:' .. ARGV[2], ARGV[3])
remember(ARGV[2], ARGV[3])
redis.call('DEL', P .. 'x:' .. ARGV[3])
post(ARGV[5], ARGV[6], false)
return {wrote()}
