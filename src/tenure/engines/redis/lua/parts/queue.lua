-- Write a new message; what has its usual value is left out. True when it is in the queue, false when it was handed over.
local function queue(mailbox, id, body, delay, reply_to, generation, key, checkpoint)
    local fields = {'b', body, 'e', now}
    local function set(name, value)
        fields[#fields + 1] = name
        fields[#fields + 1] = value
    end
    if reply_to ~= '' then set('r', reply_to) end
    if generation ~= '0' then set('g', generation) end
    if key then set('k', key) end
    if checkpoint then set('c', checkpoint) end
    redis.call('HSET', P .. 'x:' .. id, unpack(fields))
    if delay == 0 and hand(mailbox, id, body, generation, false, key, reply_to ~= '' and reply_to, checkpoint) then
        return false
    end
    redis.call('ZADD', P .. 'q:' .. mailbox, now + delay, id)
    return true
end
