-- Hand a new message to a consumer that waits, already claimed for it; false when it must be queued. An offer (o, by the time at which it
-- lapses) is `token counter address lease stage`; the freshest goes first, since its process was there most recently. A process that
-- ended has no subscriber. One that is stopped or cut off holds the message for {handed} microseconds at the most: who answers
-- (confirm) gets the whole lease. Until then the stage of a delivery that counts is 3, and `n` tells what the offer got.
local function hand(mailbox, id, body, generation, failure, key, reply_to, checkpoint)
    local o = P .. 'o:' .. mailbox
    local offer = redis.call('ZRANGE', o, -1, -1, 'WITHSCORES')
    if not offer[1] or #body + (checkpoint and #checkpoint or 0) > {small} then
        return false
    end
    for _, set in ipairs({'q:', 'h:'}) do
        local first = redis.call('ZRANGE', P .. set .. mailbox, 0, 0, 'WITHSCORES')[2]
        if first and tonumber(first) <= now then
            return false  -- those who are due go first
        end
    end
    while offer[1] and tonumber(offer[2]) > now do
        redis.call('ZREM', o, offer[1])
        local token, counter, address, lease, stage = string.match(offer[1], '^(%S+) (%S+) (%S+) (%S+) (%S+)$')
        local writes = redis.call('GET', P .. 'w:' .. counter)
        if writes then
            local told = redis.pcall('PUBLISH', P .. 'hand:' .. address, cjson.encode({
                token, mailbox, id, int(now), int(writes + 1), generation, failure, key or false, reply_to or false,
                checkpoint and #checkpoint or false,
            }) .. '\n' .. (checkpoint or '') .. body)
            if type(told) == 'number' and told > 0 then
                local span = math.min(tonumber(lease), {handed})
                redis.call('INCR', P .. 'w:' .. counter)
                redis.call('HSET', P .. 'x:' .. id, 't', token, 's', stage == '0' and '0' or '3', 'd', 1)
                redis.call('ZADD', P .. 'h:' .. mailbox, now + span, id)
                redis.call('SADD', P .. 'b', mailbox)
                redis.call('SET', P .. 'n:' .. token, id, 'PX', math.max(1, math.ceil(span / 1000)))
                return true
            end
        end
        offer = redis.call('ZRANGE', o, -1, -1, 'WITHSCORES')
    end
    return false
end
