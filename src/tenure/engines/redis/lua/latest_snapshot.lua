-- uses: seen
-- ARGV: seen, journal
local kept = redis.call('HMGET', P .. 'js:' .. ARGV[2], 'seq', 'epoch', 'state')
if not kept[1] then
    return {0}
end
return {0, tonumber(kept[1]), tonumber(kept[2]), kept[3]}
