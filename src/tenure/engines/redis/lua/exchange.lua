-- uses: seen time lost remember ring hand post bury withdraw; writes
-- Settle deliveries, then lease up to `most` messages that are due, from the first rank of mailboxes first, and within a rank in the order in
-- which they became due: those in the queue (q), and those whose lease (h) has run out. The latter are suspect: a batch ends before the first of
-- them, and it comes alone and counts from here on. One that was delivered as often as allowed becomes a dead letter instead. Bodies and
-- checkpoints of more than {batch} bytes together are enough for one answer.
-- Who waits leaves an offer (see hand) in one of its mailboxes, and with each look takes those back that it left there before.
-- A cover of many mailboxes has its names here (c, a set for each rank), so that a look need not bring them: then only those are looked at that are
-- known to hold something (b, see post). A look that brings the names looks at all of them, and writes them down.
-- ARGV: seen, most, lease, token, stage, limit, fair, offer, its mailbox, cover, number of ranks in the cover, offers to take back, settlements, ranks;
-- then the offers, (mailbox, id, token, reply_to, body) of each settlement, and (number, names) of each rank.
-- The answer: {_, due, rows, now, lost}. Due is in so many microseconds, 0: look again, -1: never; lost is (place, why) of each settlement that
-- was not held.
local most, token, stage, limit, fair = tonumber(ARGV[2]), ARGV[4], ARGV[5], tonumber(ARGV[6]), ARGV[7] == '1'
local offer, offered_at, cover, covered, ranks = ARGV[8], ARGV[9], ARGV[10], tonumber(ARGV[11]), {}
local at, rows, gone, size, changed, buried, ended, first_due = 15, {}, {}, 0, false, 0, false, nil
local back = at
at = at + tonumber(ARGV[12])

-- What ended together leaves with two commands for each mailbox, and not for each message. A second receipt of the same message finds it gone.
local left, done, spent_x = {}, {}, {}
for place = 0, tonumber(ARGV[13]) - 1 do
    local mailbox, id, reply_to = ARGV[at], ARGV[at + 1], ARGV[at + 3]
    local head = redis.call('HMGET', P .. 'x:' .. id, 't', 'k')
    local ends = head[1] == ARGV[at + 2] and redis.call('ZSCORE', P .. 'h:' .. mailbox, id)
    local why = done[id]
    if not why and not (ends and tonumber(ends) > now) then
        why = lost(mailbox, id, ARGV[at + 2])
    end
    if why then
        gone[#gone + 1] = place
        gone[#gone + 1] = why
    else
        if head[2] then
            remember(mailbox, id)
        end
        local ids = left[mailbox] or {}
        left[mailbox], ids[#ids + 1] = ids, id
        done[id], spent_x[#spent_x + 1] = GONE, P .. 'x:' .. id
        if reply_to ~= '' then
            post(reply_to, ARGV[at + 4], false)
        end
        changed = true
    end
    at = at + 5
end
for mailbox, ids in pairs(left) do
    redis.call('ZREM', P .. 'h:' .. mailbox, unpack(ids))
end
if changed then
    redis.call('DEL', unpack(spent_x))
end
if most == 0 then
    return {changed and wrote() or 0, -1, rows, now, gone}
end

for n = 1, tonumber(ARGV[14]) do
    local names, key = {}, P .. 'c:' .. cover .. ':' .. n
    for i = 1, tonumber(ARGV[at]) do
        names[i] = ARGV[at + i]
    end
    at, ranks[n] = at + #names + 1, names
    if cover ~= '' then
        local noted = redis.call('SRANDMEMBER', P .. 'b')
        if noted and redis.call('EXISTS', P .. 'q:' .. noted, P .. 'h:' .. noted) == 0 then
            redis.call('SREM', P .. 'b', noted)  -- of a mailbox that nobody looks at any more
        end
        redis.call('DEL', key)
        redis.call('SADD', key, unpack(names))
        redis.call('EXPIRE', key, {covered})
    end
end
for n = back, back + tonumber(ARGV[12]) - 1 do
    withdraw(offered_at, ARGV[n])
end

-- The messages of a mailbox that are due: {score, id, late, mailbox}. Where there is none, notes when there will be.
local function due(mailbox, want, found)
    local before = #found
    for _, set in ipairs({'h:', 'q:'}) do
        local part = redis.call('ZRANGEBYSCORE', P .. set .. mailbox, '-inf', now, 'LIMIT', 0, want, 'WITHSCORES')
        for i = 1, #part, 2 do
            found[#found + 1] = {tonumber(part[i + 1]), part[i], set == 'h:', mailbox}
        end
    end
    if #found > before then
        return
    end
    local some = false
    for _, set in ipairs({'h:', 'q:'}) do
        local score = tonumber(redis.call('ZRANGE', P .. set .. mailbox, 0, 0, 'WITHSCORES')[2])
        if score then
            some, first_due = true, math.min(score, first_due or score)
        end
    end
    if not some then
        redis.call('SREM', P .. 'b', mailbox)
    end
end

-- The mailboxes of a rank that may hold something.
local function candidates(n)
    if not ranks[n] then
        return redis.call('SINTER', P .. 'c:' .. cover .. ':' .. n, P .. 'b')
    elseif #ranks[n] == 1 then
        return ranks[n]
    end
    local some = {}
    for _, mailbox in ipairs(ranks[n]) do
        if redis.call('EXISTS', P .. 'q:' .. mailbox, P .. 'h:' .. mailbox) > 0 then
            some[#some + 1] = mailbox
        end
    end
    if cover ~= '' and #some > 0 then
        redis.call('SADD', P .. 'b', unpack(some))  -- a process of the release before does not note it when it sends
    end
    return some
end

local function sooner(a, b)
    return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2])
end

-- Those of a rank that are due, oldest first. The first ones of all come from mailboxes whose own first one is among them.
local function next_of(names, want)
    local found = {}
    if #names == 1 then
        due(names[1], want, found)
        if #found > 1 and found[1][3] then
            table.sort(found, sooner)
        end
        return found
    end
    for _, mailbox in ipairs(names) do
        due(mailbox, 1, found)
    end
    table.sort(found, sooner)
    if want > 1 then
        local heads, known = found, {}
        found = {}
        for _, head in ipairs(heads) do
            if not known[head[4]] and #known < want then
                known[#known + 1], known[head[4]] = head[4], true
                due(head[4], want, found)
            end
        end
        table.sort(found, sooner)
    end
    return found
end

local leases, ends, taken = {}, now + tonumber(ARGV[3]), {}
local function take(id, late, mailbox)
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
    local from = P .. (late and 'h:' or 'q:') .. mailbox
    local ids = taken[from] or {}
    taken[from], ids[#ids + 1] = ids, id
    if late then
        redis.call('HSET', x, 'f', forgiven)
    end
    if spent then
        bury(mailbox, id, 'deliveries', exhausted(tries, suspect))
        buried = buried + 1
    elseif row[10] then
        redis.call('HSET', x, 't', token, 's', suspect and stage == '0' and '1' or stage, 'd', counted + 1)
        local held = leases[mailbox] or {}
        leases[mailbox], held[#held + 1], held[#held + 2] = held, ends, id
        row[1], row[2], row[3], row[11], row[12] = counted + 1, forgiven, id, suspect and 1 or 0, mailbox
        rows[#rows + 1] = row
        size = size + #row[10] + (row[9] and #row[9] or 0)
        ended = suspect
    end
end

local function enough()
    return ended or #rows == most or buried >= 1000 or size > {batch}
end

for n = 1, covered do
    local rank = fair and covered + 1 - n or n
    local names = candidates(rank)
    repeat
        local found = next_of(names, most - #rows)
        for _, one in ipairs(found) do
            if enough() then
                break
            end
            take(one[2], one[3], one[4])
        end
        for from, ids in pairs(taken) do
            redis.call('ZREM', from, unpack(ids))
        end
        taken = {}
    until #found == 0 or enough()
    if enough() then
        break
    end
end

for mailbox, held in pairs(leases) do
    redis.call('ZADD', P .. 'h:' .. mailbox, unpack(held))
end
if #rows > 0 or buried > 0 then
    return {wrote(), 0, rows, now, gone}
end
if offer ~= '' then
    local o = P .. 'o:' .. offered_at
    redis.call('ZREMRANGEBYSCORE', o, '-inf', now)
    redis.call('ZADD', o, now + {offered}, offer)
    redis.call('PEXPIRE', o, {offered} / 1000)
end
return {changed and wrote() or 0, first_due and math.max(1, first_due - now) or -1, rows, now, gone}
