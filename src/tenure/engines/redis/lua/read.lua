-- uses: seen
-- Entries above `after`, in order, at most `limit` or about `bytes` of them: {_, truncated, entries}. ARGV: seen, journal, after,
-- limit, bytes. An entry that is missing is an empty string.
local head = redis.call('HMGET', P .. 'j:' .. ARGV[2], 'seq', 'truncated')
local after, truncated = tonumber(ARGV[3]), tonumber(head[2] or 0)
local entries, size = {}, 0
if after < truncated then
    return {0, truncated, entries}
end
for seq = after + 1, math.min(after + tonumber(ARGV[4]), tonumber(head[1] or 0)) do
    local entry = redis.call('HGET', P .. 'je:' .. ARGV[2], seq) or ''
    entries[#entries + 1] = entry
    size = size + #entry
    if size > tonumber(ARGV[5]) then
        break
    end
end
return {0, 0, entries}
