-- uses: seen time lost remember ring hand post bury; writes
-- Give up on a message. ARGV: seen, mailbox, id, token, cause, reason
local why = lost(ARGV[2], ARGV[3], ARGV[4])
if why then
    return {0, why}
end
redis.call('ZREM', P .. 'h:' .. ARGV[2], ARGV[3])
bury(ARGV[2], ARGV[3], ARGV[5], ARGV[6])
return {wrote()}
