-- uses: seen time ring; writes
-- Queue several that have nothing but a body, in order. ARGV: seen, mailbox, bodies; the answer is the first id's number
local count = #ARGV - 2
local last = redis.call('INCRBY', P .. 'last', count)
local scores = {}
for n = 1, count do
    local id = string.format('%016.0f', last - count + n)
    redis.call('HSET', P .. 'x:' .. id, 'b', ARGV[n + 2], 'e', now)
    scores[#scores + 1] = now
    scores[#scores + 1] = id
    if #scores == 1000 or n == count then
        redis.call('ZADD', P .. 'q:' .. ARGV[2], unpack(scores))
        scores = {}
    end
end
ring('m:' .. ARGV[2])
return {wrote(), last - count + 1}
