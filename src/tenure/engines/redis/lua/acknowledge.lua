-- uses: seen time lost remember; writes
-- Remove a message that this delivery holds. ARGV: seen, mailbox, id, token
local why = lost(ARGV[2], ARGV[3], ARGV[4])
if why then
    return {0, why}
end
redis.call('ZREM', P .. 'h:' .. ARGV[2], ARGV[3])
remember(ARGV[2], ARGV[3])
redis.call('DEL', P .. 'x:' .. ARGV[3])
return {wrote()}
