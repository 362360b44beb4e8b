-- uses: seen time lost; writes
-- Hold deliveries for longer, never for shorter; from the first extension on they count. The answer: {_, lost}, as in exchange.
-- ARGV: seen, microseconds, has a checkpoint, checkpoint, then mailbox, id and token of each
local gone, held = {}, false
for n = 5, #ARGV, 3 do
    local mailbox, id = ARGV[n], ARGV[n + 1]
    local why = lost(mailbox, id, ARGV[n + 2])
    if why then
        gone[#gone + 1] = (n - 5) / 3
        gone[#gone + 1] = why
    else
        held = true
        redis.call('ZADD', P .. 'h:' .. mailbox, 'XX', 'GT', now + tonumber(ARGV[2]), id)
        if ARGV[3] == '1' then
            redis.call('HSET', P .. 'x:' .. id, 's', '2', 'c', ARGV[4])
        else
            redis.call('HSET', P .. 'x:' .. id, 's', '2')
        end
    end
end
return {held and wrote() or 0, gone}
