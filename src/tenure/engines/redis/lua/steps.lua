-- uses: seen time lost
-- The steps of a key, in order, while this delivery is held. ARGV: seen, mailbox, id, token, key
local why = lost(ARGV[2], ARGV[3], ARGV[4])
if why then
    return {0, why}
end
local k, found = P .. 'k:' .. ARGV[2] .. ':' .. ARGV[5], {}
for n = 1, tonumber(redis.call('HGET', k, 'n') or 0) do
    found[n] = redis.call('HGET', k, 's' .. n)
end
return {0, false, found}
