-- uses: seen time ring hand post queue accept; writes
-- Queue a message with a key, or say which generation is in its way. ARGV: as send, and key
local id = new_id()
local current, more = accept(ARGV[2], ARGV[7], ARGV[6], id)
if current then
    return {wrote(), id, current, more}
end
if queue(ARGV[2], id, ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6], ARGV[7], more) then
    ring_mailbox(ARGV[2])
end
return {wrote(), id}
