-- uses: seen time; writes
-- Take the seat if it is free or ours already; -1 when somebody else has it. The epoch always grows.
-- ARGV: seen, election, candidate, ttl, above
local l = P .. 'l:' .. ARGV[2]
local seat = redis.call('HMGET', l, 'epoch', 'candidate', 'ends')
if seat[1] and seat[2] ~= ARGV[3] and tonumber(seat[3]) > now then
    return {0, -1}
end
local epoch = math.max(tonumber(seat[1] or 0), tonumber(ARGV[5])) + 1
redis.call('HSET', l, 'epoch', epoch, 'candidate', ARGV[3], 'ends', now + tonumber(ARGV[4]))
return {wrote(), epoch}
