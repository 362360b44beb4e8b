-- Take an offer back, and what was handed over on it to where it came from, the front: nobody has seen it, so it does not count.
local function withdraw(mailbox, offer)
    if redis.call('ZREM', P .. 'o:' .. mailbox, offer) == 1 then
        return false
    end
    local token = string.match(offer, '^%S+')
    local id = redis.call('GET', P .. 'n:' .. token)
    if not id then
        return false
    end
    redis.call('DEL', P .. 'n:' .. token)
    local x, h = P .. 'x:' .. id, P .. 'h:' .. mailbox
    local row = redis.call('HMGET', x, 't', 'e')
    local ends = redis.call('ZSCORE', h, id)
    if row[1] ~= token or not ends or tonumber(ends) <= now then
        return false
    end
    redis.call('HDEL', x, 't', 's', 'd')
    redis.call('ZREM', h, id)
    redis.call('ZADD', P .. 'q:' .. mailbox, row[2], id)
    return true
end
