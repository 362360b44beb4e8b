-- uses: seen
-- Where a journal ends. ARGV: seen, journal
local head = redis.call('HMGET', P .. 'j:' .. ARGV[2], 'seq', 'epoch')
return {0, tonumber(head[1] or 0), tonumber(head[2] or 0)}
