-- uses: seen; writes
-- Forget entries up to `seq`, at most up to the snapshot, and at most `most` of them in one step; how many are left to forget.
-- ARGV: seen, journal, seq, most
local j = P .. 'j:' .. ARGV[2]
local kept = redis.call('HGET', P .. 'js:' .. ARGV[2], 'seq')
local truncated = tonumber(redis.call('HGET', j, 'truncated') or 0)
local target = math.min(tonumber(ARGV[3]), tonumber(kept or 0))
if target <= truncated then
    return {0, 0}
end
local step = math.min(target, truncated + tonumber(ARGV[4]))
for seq = truncated + 1, step do
    redis.call('HDEL', P .. 'je:' .. ARGV[2], seq)
end
redis.call('HSET', j, 'truncated', step)
return {wrote(), target - step}
