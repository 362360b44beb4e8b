-- uses: seen time ring hand post queue; writes
-- Queue a message without a key. ARGV: seen, mailbox, body, delay, reply_to, generation
local id = new_id()
if queue(ARGV[2], id, ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]) then
    ring_mailbox(ARGV[2])
end
return {wrote(), id}
