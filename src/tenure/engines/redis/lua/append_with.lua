-- uses: seen time lost remember ring hand post queue accept; writes
-- Write one entry as append does; if it is written, queue messages as send_across does and acknowledge deliveries. All of it, or nothing.
-- The answer: {_, seq, sent, lost}, where sent is as send_across tells it and lost has the places of those that were not held; otherwise
-- {0, -1, last, epoch}. ARGV: seen, journal, packed, epoch, expect, messages, deliveries; then mailbox, body, delay, reply_to, generation and key
-- of each message, and mailbox, id and token of each delivery.
local j = P .. 'j:' .. ARGV[2]
local head = redis.call('HMGET', j, 'seq', 'epoch', 'at')
local seq, epoch = tonumber(head[1] or 0), tonumber(head[2] or 0)
if epoch > tonumber(ARGV[4]) or seq ~= tonumber(ARGV[5]) then
    return {0, -1, seq, epoch}
end
local at = int(math.max(now, tonumber(head[3] or 0)))
redis.call('HSET', j, 'seq', seq + 1, 'epoch', ARGV[4], 'at', at)
redis.call('HSET', P .. 'je:' .. ARGV[2], seq + 1, at .. '\n' .. ARGV[4] .. '\n' .. ARGV[3])
ring('j:' .. ARGV[2])

local sent, queued, gone, n = {}, {}, {}, 8
for _ = 1, tonumber(ARGV[6]) do
    local mailbox, id, key, current, more = ARGV[n], new_id(), ARGV[n + 5], nil, false
    if key == '' then
        key = false
    else
        current, more = accept(mailbox, key, ARGV[n + 4], id)
    end
    if current then
        sent[#sent + 1] = {id, current, more}
    else
        queued[mailbox] = queue(mailbox, id, ARGV[n + 1], tonumber(ARGV[n + 2]), ARGV[n + 3], ARGV[n + 4], key, more)
            or queued[mailbox]
        sent[#sent + 1] = {id}
    end
    n = n + 6
end
for mailbox, due in pairs(queued) do
    if due then
        ring_mailbox(mailbox)
    end
end
for place = 0, tonumber(ARGV[7]) - 1 do
    local mailbox, id = ARGV[n], ARGV[n + 1]
    if lost(mailbox, id, ARGV[n + 2]) then
        gone[#gone + 1] = place
    else
        redis.call('ZREM', P .. 'h:' .. mailbox, id)
        remember(mailbox, id)
        redis.call('DEL', P .. 'x:' .. id)
    end
    n = n + 3
end
return {wrote(), seq + 1, sent, gone}
