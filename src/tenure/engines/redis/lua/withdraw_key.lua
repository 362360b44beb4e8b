-- uses: seen time remember; writes
-- Take the message of a key back, up to a generation, unless it is leased: 'withdrawn', 'leased' or 'absent'.
-- ARGV: seen, mailbox, key, generation
local mailbox, k = ARGV[2], P .. 'k:' .. ARGV[2] .. ':' .. ARGV[3]
local key = redis.call('HMGET', k, 'g', 'x')
if not key[2] or tonumber(key[1]) > tonumber(ARGV[4]) then
    return {0, 'absent'}
end
local id, h = key[2], P .. 'h:' .. mailbox
local ends = redis.call('ZSCORE', h, id)
if ends and tonumber(ends) > now then
    return {0, 'leased'}
end
if redis.call('ZREM', P .. 'q:' .. mailbox, id) + redis.call('ZREM', h, id) == 0 then
    return {0, 'absent'}
end
remember(mailbox, id)
redis.call('UNLINK', P .. 'x:' .. id)
return {wrote(), 'withdrawn'}
