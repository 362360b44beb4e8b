-- uses: seen
-- How many dead letters there are. ARGV: seen, mailbox
return {0, redis.call('ZCARD', P .. 'd:' .. ARGV[2])}
