-- A message ended: its key, if it has one, is forgotten a day from now, and keeps the checkpoint for a next generation.
local function remember(mailbox, id)
    local key = redis.call('HGET', P .. 'x:' .. id, 'k')
    if key then
        local k = P .. 'k:' .. mailbox .. ':' .. key
        local checkpoint = redis.call('HGET', P .. 'x:' .. id, 'c')
        if checkpoint then
            redis.call('HSET', k, 'c', checkpoint)
        end
        redis.call('EXPIRE', k, {memory})
    end
end
