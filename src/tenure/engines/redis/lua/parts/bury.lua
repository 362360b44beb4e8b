-- Move a message, which is in no queue any more, to the dead letters, and tell whoever waits for its reply.
local function bury(mailbox, id, cause, reason)
    local x = P .. 'x:' .. id
    redis.call('HDEL', x, 't', 's')
    redis.call('HSET', x, 'cause', cause, 'reason', reason, 'died', now)
    redis.call('ZADD', P .. 'd:' .. mailbox, redis.call('INCR', P .. 'last'), id)
    remember(mailbox, id)
    local row = redis.call('HMGET', x, 'r', 'k', 'g', 'd')
    if row[1] then
        -- Numbers as they are stored: cjson would round a large generation.
        post(row[1], '{"message_id":"' .. id .. '","mailbox":' .. cjson.encode(mailbox) .. ',"cause":"' .. cause
            .. '","reason":' .. cjson.encode(reason) .. ',"key":' .. (row[2] and cjson.encode(row[2]) or 'null')
            .. ',"generation":' .. (row[3] or '0') .. ',"delivery_count":' .. (row[4] or '0') .. '}', true)
    end
end
-- As `why_given_up` says it.
local function exhausted(times, expired)
    return 'delivered ' .. times .. (times == 1 and ' time' or ' times') .. ' without being settled'
        .. (expired and ': the last claim ended by the expiry of its lease' or '')
end
