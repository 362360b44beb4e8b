-- Tell who waits on a topic; nearly free when nobody does.
local function ring(topic)
    redis.call('PUBLISH', P .. 'bell:' .. topic, '')
end
