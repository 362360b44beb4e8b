-- uses: seen; writes
-- Keep a snapshot: {_, ''}, or say what is newer: 'epoch', 'seq' or 'ahead', with the value that stands against it.
-- ARGV: seen, journal, state, seq, epoch
local head = redis.call('HMGET', P .. 'j:' .. ARGV[2], 'seq', 'epoch')
local kept = redis.call('HMGET', P .. 'js:' .. ARGV[2], 'seq', 'epoch')
local newest = math.max(tonumber(head[2] or 0), tonumber(kept[2] or 0))
local seq, last = tonumber(ARGV[4]), tonumber(head[1] or 0)
if tonumber(ARGV[5]) < newest then
    return {0, 'epoch', newest}
elseif seq > last then
    return {0, 'ahead', last}
elseif kept[1] and seq < tonumber(kept[1]) then
    return {0, 'seq', tonumber(kept[1])}
end
redis.call('HSET', P .. 'js:' .. ARGV[2], 'seq', ARGV[4], 'epoch', ARGV[5], 'state', ARGV[3])
return {wrote(), ''}
