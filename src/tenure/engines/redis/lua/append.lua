-- uses: seen time ring; writes
-- Write one entry after `expect`, if it is the last and no higher epoch has written: {_, seq}; otherwise {_, -1, last, epoch}.
-- An entry is its time, its epoch and what the client packed. ARGV: seen, journal, packed, epoch, expect
local j = P .. 'j:' .. ARGV[2]
local head = redis.call('HMGET', j, 'seq', 'epoch', 'at')
local seq, epoch = tonumber(head[1] or 0), tonumber(head[2] or 0)
if epoch > tonumber(ARGV[4]) or seq ~= tonumber(ARGV[5]) then
    return {0, -1, seq, epoch}
end
local at = int(math.max(now, tonumber(head[3] or 0)))
redis.call('HSET', j, 'seq', seq + 1, 'epoch', ARGV[4], 'at', at)
redis.call('HSET', P .. 'je:' .. ARGV[2], seq + 1, at .. '\n' .. ARGV[4] .. '\n' .. ARGV[3])
ring('j:' .. ARGV[2])
return {wrote(), seq + 1}
