-- uses: seen remember; writes
-- Remove up to `most` messages of any kind; keys stay, with the checkpoints of what they carried. ARGV: seen, mailbox, most
local gone = 0
for _, set in ipairs({P .. 'q:' .. ARGV[2], P .. 'h:' .. ARGV[2]}) do
    for _, id in ipairs(redis.call('ZRANGE', set, 0, tonumber(ARGV[3]) - 1)) do
        redis.call('ZREM', set, id)
        remember(ARGV[2], id)
        redis.call('UNLINK', P .. 'x:' .. id)
        gone = gone + 1
    end
end
return {wrote(), gone}
