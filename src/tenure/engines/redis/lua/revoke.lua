-- uses: seen; writes
-- Withdraw a key for good; whether that hit a live message. ARGV: seen, mailbox, key
local k = P .. 'k:' .. ARGV[2] .. ':' .. ARGV[3]
local id = redis.call('HGET', k, 'x')
local live = 0
if id then
    live = redis.call('ZREM', P .. 'q:' .. ARGV[2], id) + redis.call('ZREM', P .. 'h:' .. ARGV[2], id)
    if live > 0 then
        redis.call('DEL', P .. 'x:' .. id)
    end
end
redis.call('HSETNX', k, 'g', -1)
redis.call('HSET', k, 'r', '1')
redis.call('HDEL', k, 'c')
for n = 1, tonumber(redis.call('HGET', k, 'n') or 0) do
    redis.call('HDEL', k, 's' .. n)
end
redis.call('EXPIRE', k, {memory})
return {wrote(), live}
