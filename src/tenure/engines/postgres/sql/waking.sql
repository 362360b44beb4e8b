-- One function per operation: one round trip, one transaction, one plan that is kept for the session.
--
-- {planner} makes each plan independent of statistics: "SET enable_seqscan = off" and the like, so that a plan made while a
-- table was empty is still the index scan that it has to be when there are a million rows. No ANALYZE is ever needed.
-- Names of parameters begin with p_, of variables with v_, of results with o_.

-- Who is told of what: listening, and ringing only when somebody listens.

-- Tell who waits on a topic, if anybody does; last in its transaction.
-- A waiter holds the lock "waiters" in shared mode, then passes once through the lock "senders" alone (listen). So either we see
-- it here and notify, or it waits there until we have committed, and sees what we wrote. Without waiters nothing is
-- notified: NOTIFY makes commits wait for each other.
CREATE FUNCTION {schema}.ring_one(p_topic text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared({senders}, hashtext(p_topic));
    IF pg_try_advisory_lock({waiters}, hashtext(p_topic)) THEN
        PERFORM pg_advisory_unlock({waiters}, hashtext(p_topic));
    ELSE
        PERFORM pg_notify({channel} || md5(p_topic), '');
    END IF;
END $$;

-- The same, and for a mailbox also its bucket, one of 64: a consumer of hundreds of mailboxes listens to buckets, because each topic that is
-- listened to costs a lock, of which a server has some thousands. Python has the same rule (engine.py).
CREATE FUNCTION {schema}.ring(p_topic text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {schema}.ring_one(p_topic);
    IF p_topic LIKE 'm/%' THEN
        PERFORM {schema}.ring_one('b/' || (get_byte(decode(md5(p_topic), 'hex'), 0) & 63));
    END IF;
END $$;

-- Listen to a topic on this session. What was committed before this returns is there to be seen, what comes later notifies.
CREATE FUNCTION {schema}.listen(p_topic text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('LISTEN %I', {channel} || md5(p_topic));
    PERFORM pg_advisory_lock_shared({waiters}, hashtext(p_topic));
    PERFORM pg_advisory_xact_lock({senders}, hashtext(p_topic));
END $$;

CREATE FUNCTION {schema}.unlisten(p_topic text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('UNLISTEN %I', {channel} || md5(p_topic));
    PERFORM pg_advisory_unlock_shared({waiters}, hashtext(p_topic));
END $$;
