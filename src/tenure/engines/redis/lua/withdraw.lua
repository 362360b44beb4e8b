-- uses: seen time ring withdraw; writes
-- A consumer waits no longer. ARGV: seen, mailbox, offers
local given = false
for n = 3, #ARGV do
    given = withdraw(ARGV[2], ARGV[n]) or given
end
if given then
    ring_mailbox(ARGV[2])
    return {wrote()}
end
return {0}
