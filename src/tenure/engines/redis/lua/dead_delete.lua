-- uses: seen; writes
-- Delete one dead letter. ARGV: seen, mailbox, id
if redis.call('ZREM', P .. 'd:' .. ARGV[2], ARGV[3]) == 0 then
    return {0, 0}
end
redis.call('UNLINK', P .. 'x:' .. ARGV[3])
return {wrote(), 1}
