-- uses: seen time ring hand post queue accept; writes
-- Queue several of any kind, in order. ARGV: seen, mailbox, then body, delay, reply_to, generation and key of each
local answers, queued = {}, false
for n = 3, #ARGV, 5 do
    local id, key, current, more = new_id(), ARGV[n + 4], nil, false
    if key == '' then
        key = false
    else
        current, more = accept(ARGV[2], key, ARGV[n + 3], id)
    end
    if current then
        answers[#answers + 1] = {id, current, more}
    else
        queued = queue(ARGV[2], id, ARGV[n], tonumber(ARGV[n + 1]), ARGV[n + 2], ARGV[n + 3], key, more) or queued
        answers[#answers + 1] = {id}
    end
end
if queued then
    ring_mailbox(ARGV[2])
end
return {wrote(), answers}
