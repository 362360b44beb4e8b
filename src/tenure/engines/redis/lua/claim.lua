-- uses: seen time ring hand post remember bury withdraw; writes
-- Lease up to `most` messages that are due, in the order in which they became so: those in the queue (q), and those whose lease
-- (h) has run out. The latter are suspect: a batch ends before the first of them, and it comes alone and counts from here on. One
-- that was delivered as often as allowed becomes a dead letter instead. With nothing due, the answer
-- says in how many microseconds something will be (-1: nothing is there). Bodies and checkpoints of more
-- than {batch} bytes together are enough for one answer. Who waits leaves an offer (see hand), and with each look takes those back that
-- it left before; the answer then ends with the server's time.
-- ARGV: seen, mailbox, most, lease, token, stage, limit, offer or '', offers that were left
local mailbox, most, token, stage, limit = ARGV[2], tonumber(ARGV[3]), ARGV[5], ARGV[6], tonumber(ARGV[7])
local q, h = P .. 'q:' .. mailbox, P .. 'h:' .. mailbox
local rows, buried, size, ended = {}, 0, 0, false
for n = 9, #ARGV do
    withdraw(mailbox, ARGV[n])
end

-- The ids that are due, and which of them come from h.
local function due(want)
    local late = redis.call('ZRANGEBYSCORE', h, '-inf', now, 'LIMIT', 0, want, 'WITHSCORES')
    if #late == 0 then
        return redis.call('ZRANGEBYSCORE', q, '-inf', now, 'LIMIT', 0, want), {}
    end
    local ready = redis.call('ZRANGEBYSCORE', q, '-inf', now, 'LIMIT', 0, want, 'WITHSCORES')
    local ids, from_h, i, j = {}, {}, 1, 1
    while #ids < want and (late[i] or ready[j]) do
        local a, b = tonumber(late[i + 1]), tonumber(ready[j + 1])
        if a and (not b or a < b or (a == b and late[i] < ready[j])) then
            ids[#ids + 1] = late[i]
            from_h[late[i]] = true
            i = i + 2
        else
            ids[#ids + 1] = ready[j]
            j = j + 2
        end
    end
    return ids, from_h
end

local function take(id, late)
    local x = P .. 'x:' .. id
    local row = redis.call('HMGET', x, 'd', 'f', 's', 'e', 'g', 'F', 'k', 'r', 'c', 'b')
    -- Where it was handed over and nobody answered (3), nobody had it: that tells nothing of the message.
    local suspect = late and row[3] ~= '3'
    local counted, forgiven = tonumber(row[1] or 0), tonumber(row[2] or 0)
    if late and (row[3] == '0' or row[3] == '3') then
        forgiven = forgiven + 1  -- no try, and yet a number that may be known
    end
    local tries = counted - forgiven
    local spent = limit and tries >= limit
    if suspect and #rows > 0 and not spent then
        ended = true
        return
    end
    redis.call('ZREM', late and h or q, id)
    if late then
        redis.call('HSET', x, 'f', forgiven)
    end
    if spent then
        bury(mailbox, id, 'deliveries', exhausted(tries, suspect))
        buried = buried + 1
    elseif row[10] then
        redis.call('HSET', x, 't', token, 's', suspect and stage == '0' and '1' or stage, 'd', counted + 1)
        row[1], row[2], row[3], row[11] = counted + 1, forgiven, id, suspect and 1 or 0
        rows[#rows + 1] = row
        size = size + #row[10] + (row[9] and #row[9] or 0)
        ended = suspect
    end
end

repeat
    local ids, from_h = due(most - #rows)
    for _, id in ipairs(ids) do
        if ended or size > {batch} then
            break
        end
        take(id, from_h[id])
    end
until ended or #rows == most or #ids == 0 or buried >= 1000 or size > {batch}

if #rows > 0 then
    local ends, scores = now + tonumber(ARGV[4]), {}
    for n, row in ipairs(rows) do
        scores[#scores + 1] = ends
        scores[#scores + 1] = row[3]
        if #scores == 1000 or n == #rows then
            redis.call('ZADD', h, unpack(scores))
            scores = {}
        end
    end
    return {wrote(), 0, rows}
end
if buried > 0 then
    return {wrote(), 0, rows}
end
if ARGV[8] ~= '' then
    local o = P .. 'o:' .. mailbox
    redis.call('ZREMRANGEBYSCORE', o, '-inf', now)
    redis.call('ZADD', o, now + {offered}, ARGV[8])
    redis.call('PEXPIRE', o, {offered} / 1000)
end
local a = tonumber(redis.call('ZRANGE', q, 0, 0, 'WITHSCORES')[2])
local b = tonumber(redis.call('ZRANGE', h, 0, 0, 'WITHSCORES')[2])
if not a and not b then
    return {0, -1, rows, now}
end
return {0, math.max(1, math.min(a or b, b or a) - now), rows, now}
