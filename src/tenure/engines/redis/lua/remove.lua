-- uses: seen; writes
-- Remove a value; its fence, if it has one, stays for a day. ARGV: seen, store, key
local member = ARGV[2] .. ':' .. ARGV[3]
if redis.call('UNLINK', P .. 'v:' .. member) == 0 then
    return {0, 0}
end
redis.call('ZREM', P .. 's:' .. ARGV[2], ARGV[3])
redis.call('ZREM', P .. 't', member)
redis.call('EXPIRE', P .. 'f:' .. member, {memory})
return {wrote(), 1}
