-- uses: seen
-- The value of each key, or false. ARGV: seen, store, keys
local found = {}
for at = 3, #ARGV do
    found[at - 2] = redis.call('GET', P .. 'v:' .. ARGV[2] .. ':' .. ARGV[at])
end
return {0, found}
