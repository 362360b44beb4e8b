-- Why this delivery does not hold its message now, or nil when it does.
local GONE = 'it was settled, replaced, revoked or purged'
local function lost(mailbox, id, token)
    local x = P .. 'x:' .. id
    local holder = redis.call('HGET', x, 't')
    if holder == token then
        local ends = redis.call('ZSCORE', P .. 'h:' .. mailbox, id)
        if ends and tonumber(ends) > now then
            return nil
        end
        return 'its lease ran out'
    elseif holder then
        return 'its lease ran out, and it was delivered again'
    elseif redis.call('ZSCORE', P .. 'd:' .. mailbox, id) then
        return 'it is a dead letter'
    elseif redis.call('EXISTS', x) == 1 then
        return 'it was given back'
    end
    return GONE
end
