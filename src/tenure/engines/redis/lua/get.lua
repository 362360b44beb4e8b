-- uses: seen
-- ARGV: seen, store, key
return {0, redis.call('GET', P .. 'v:' .. ARGV[2] .. ':' .. ARGV[3])}
