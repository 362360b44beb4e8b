-- uses: seen time lost; writes
-- Append to the steps of a key while this delivery is held, and hold it for longer. The steps are fields of the key's hash: they
-- live, expire and persist with it. ARGV: seen, mailbox, id, token, microseconds, key, record
local mailbox, id = ARGV[2], ARGV[3]
local why = lost(mailbox, id, ARGV[4])
if why then
    return {0, why}
end
redis.call('ZADD', P .. 'h:' .. mailbox, 'XX', 'GT', now + tonumber(ARGV[5]), id)
redis.call('HSET', P .. 'x:' .. id, 's', '2')
local k = P .. 'k:' .. mailbox .. ':' .. ARGV[6]
redis.call('HSET', k, 's' .. redis.call('HINCRBY', k, 'n', 1), ARGV[7])
return {wrote()}
