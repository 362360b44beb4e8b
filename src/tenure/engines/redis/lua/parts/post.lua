-- Ids sort as they were given out, so that messages of one microsecond stay in order.
local function new_id()
    return string.format('%016.0f', redis.call('INCR', P .. 'last'))
end
-- Put an answer into a mailbox.
local function post(mailbox, body, failure)
    local id = new_id()
    if failure then
        redis.call('HSET', P .. 'x:' .. id, 'b', body, 'e', now, 'F', '1')
    else
        redis.call('HSET', P .. 'x:' .. id, 'b', body, 'e', now)
    end
    if not hand(mailbox, id, body, '0', failure) then
        redis.call('ZADD', P .. 'q:' .. mailbox, now, id)
        ring_mailbox(mailbox)
    end
end
