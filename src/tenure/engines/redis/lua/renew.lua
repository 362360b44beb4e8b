-- uses: seen time; writes
-- Another ttl in the same epoch: {_, 1}; otherwise {_, 0, the newest epoch}. ARGV: seen, election, epoch, ttl
local l = P .. 'l:' .. ARGV[2]
local seat = redis.call('HMGET', l, 'epoch', 'ends')
if not seat[1] or tonumber(seat[1]) ~= tonumber(ARGV[3]) or tonumber(seat[2]) <= now then
    return {0, 0, tonumber(seat[1] or 0)}
end
redis.call('HSET', l, 'ends', now + tonumber(ARGV[4]))
return {wrote(), 1}
