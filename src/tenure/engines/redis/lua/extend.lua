-- uses: seen time lost; writes
-- Hold it for longer, never for shorter; from the first extension on the delivery counts.
-- ARGV: seen, mailbox, id, token, microseconds[, checkpoint]
local why = lost(ARGV[2], ARGV[3], ARGV[4])
if why then
    return {0, why}
end
redis.call('ZADD', P .. 'h:' .. ARGV[2], 'XX', 'GT', now + tonumber(ARGV[5]), ARGV[3])
if ARGV[6] then
    redis.call('HSET', P .. 'x:' .. ARGV[3], 's', '2', 'c', ARGV[6])
else
    redis.call('HSET', P .. 'x:' .. ARGV[3], 's', '2')
end
return {wrote()}
