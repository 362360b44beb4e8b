-- Tell who waits on a topic; nearly free when nobody does. A user who may not publish gets its work done all the same: waiters look
-- by themselves, and `tenure doctor` names the missing right. An error here would leave half of a script done.
local function ring(topic)
    redis.pcall('PUBLISH', P .. 'bell:' .. topic, '')
end
-- The same for a mailbox that got a message, which is noted: a look at many mailboxes looks at those that are noted (b).
local function ring_mailbox(mailbox)
    redis.call('SADD', P .. 'b', mailbox)
    ring('m:' .. mailbox)
end
