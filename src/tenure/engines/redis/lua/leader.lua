-- uses: seen time
-- Who leads, in which epoch, and for how many more microseconds. ARGV: seen, election
local seat = redis.call('HMGET', P .. 'l:' .. ARGV[2], 'epoch', 'candidate', 'ends')
if not seat[1] or tonumber(seat[3]) <= now then
    return {0}
end
return {0, seat[2], tonumber(seat[1]), tonumber(seat[3]) - now}
