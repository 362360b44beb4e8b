-- uses: seen; writes
-- Register an engine object. The instance, `version id`, is written once for a namespace: {_, instance, whether it is new}.
-- ARGV: seen, instance
local new = redis.call('SETNX', P .. 'i', ARGV[2])
return {wrote(), redis.call('GET', P .. 'i'), new}
