-- uses: seen time lost remember; writes
-- Acknowledge several; the answer has the positions of those that were not held. ARGV: seen, mailbox, then id and token of each
local refused = {}
for n = 3, #ARGV, 2 do
    local id = ARGV[n]
    if lost(ARGV[2], id, ARGV[n + 1]) then
        refused[#refused + 1] = (n - 3) / 2
    else
        redis.call('ZREM', P .. 'h:' .. ARGV[2], id)
        remember(ARGV[2], id)
        redis.call('DEL', P .. 'x:' .. id)
    end
end
return {wrote(), refused}
