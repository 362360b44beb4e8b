-- uses: seen time lost; writes
-- What was handed over has arrived: it has its whole lease, and counts if its consumer claims so. May come after other calls with this
-- receipt, and twice. ARGV: seen, mailbox, id, token, end of the lease, stage
redis.call('DEL', P .. 'n:' .. ARGV[4])
local why = lost(ARGV[2], ARGV[3], ARGV[4])
if why then
    return {0, why}
end
redis.call('ZADD', P .. 'h:' .. ARGV[2], 'XX', 'GT', ARGV[5], ARGV[3])
if redis.call('HGET', P .. 'x:' .. ARGV[3], 's') == '3' then
    redis.call('HSET', P .. 'x:' .. ARGV[3], 's', ARGV[6])
end
return {wrote()}
