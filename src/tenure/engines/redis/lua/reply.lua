-- uses: seen time lost ring hand post; writes
-- Answer and stay the holder. ARGV: seen, mailbox, id, token, reply_to, body
local why = lost(ARGV[2], ARGV[3], ARGV[4])
if why then
    return {0, why}
end
post(ARGV[5], ARGV[6], false)
return {wrote()}
