-- uses: seen time ring hand post queue accept; writes
-- Queue several of several mailboxes, in order. ARGV: seen, then mailbox, body, delay, reply_to, generation and key of each
local answers, queued = {}, {}
for n = 2, #ARGV, 6 do
    local mailbox, id, key, current, more = ARGV[n], new_id(), ARGV[n + 5], nil, false
    if key == '' then
        key = false
    else
        current, more = accept(mailbox, key, ARGV[n + 4], id)
    end
    if current then
        answers[#answers + 1] = {id, current, more}
    else
        queued[mailbox] = queue(mailbox, id, ARGV[n + 1], tonumber(ARGV[n + 2]), ARGV[n + 3], ARGV[n + 4], key, more)
            or queued[mailbox]
        answers[#answers + 1] = {id}
    end
end
for mailbox, due in pairs(queued) do
    if due then
        ring_mailbox(mailbox)
    end
end
return {wrote(), answers}
