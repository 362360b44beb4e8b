-- P begins every key and holds the hash tag, so that all of them are in one slot. W counts what this engine object wrote: a
-- server that shows fewer writes than it has acknowledged went back (restarted without its data, or a replica that missed some).
local P, W = KEYS[1], KEYS[2]
if (tonumber(redis.call('GET', W)) or 0) < tonumber(ARGV[1]) then
    return redis.error_reply('WENTBACK the server shows ' .. (redis.call('GET', W) or 'none') .. ' of the ' .. ARGV[1]
        .. ' writes that it acknowledged to this process')
end
-- Counts a write; the answer's first item tells it to the client.
local function wrote()
    return redis.call('INCR', W)
end
