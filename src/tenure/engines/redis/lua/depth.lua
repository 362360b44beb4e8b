-- uses: seen time
-- How many are ready, delayed and leased. ARGV: seen, mailbox
local q, h, later = P .. 'q:' .. ARGV[2], P .. 'h:' .. ARGV[2], '(' .. int(now)
return {0, redis.call('ZCOUNT', q, '-inf', now) + redis.call('ZCOUNT', h, '-inf', now),
    redis.call('ZCOUNT', q, later, '+inf'), redis.call('ZCOUNT', h, later, '+inf')}
