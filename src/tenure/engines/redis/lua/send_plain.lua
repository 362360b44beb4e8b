-- uses: seen time ring hand; writes
-- Queue several that have nothing but a body, in order. ARGV: seen, mailbox, bodies; the answer is the first id's number
local count = #ARGV - 2
local last = redis.call('INCRBY', P .. 'last', count)
local scores, waits = {}, true
for n = 1, count do
    local id = string.format('%016.0f', last - count + n)
    redis.call('HSET', P .. 'x:' .. id, 'b', ARGV[n + 2], 'e', now)
    -- Each takes one who waits, as long as there are any.
    waits = waits and hand(ARGV[2], id, ARGV[n + 2], '0', false)
    if not waits then
        scores[#scores + 1] = now
        scores[#scores + 1] = id
    end
    if #scores == 1000 or (n == count and #scores > 0) then
        redis.call('ZADD', P .. 'q:' .. ARGV[2], unpack(scores))
        scores = {}
    end
end
if not waits then
    ring_mailbox(ARGV[2])
end
return {wrote(), last - count + 1}
