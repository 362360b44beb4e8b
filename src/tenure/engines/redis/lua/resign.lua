-- uses: seen; writes
-- Leave the seat, if it is still ours; its epoch stays. ARGV: seen, election, epoch
local l = P .. 'l:' .. ARGV[2]
local epoch = redis.call('HGET', l, 'epoch')
if not epoch or tonumber(epoch) ~= tonumber(ARGV[3]) then
    return {0}
end
redis.call('HSET', l, 'ends', 0)
return {wrote()}
