-- How messages come in: alone, in batches, with and without keys; and how keys are withdrawn and forgotten.

-- Queue a message without a key.
CREATE FUNCTION {schema}.send(p_mailbox text, p_body bytea, p_delay float8, p_reply_to text, p_generation bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_id bigint;
BEGIN
    INSERT INTO {schema}.message (mailbox, visible_at, enqueued_at, generation, reply_to, body)
    VALUES (p_mailbox, v_now + make_interval(secs => p_delay), v_now, p_generation, p_reply_to, p_body)
    RETURNING id INTO v_id;
    PERFORM {schema}.ring('m/' || p_mailbox);
    RETURN v_id;
END $$;

-- Queue several without keys, in order.
CREATE FUNCTION {schema}.send_plain(p_mailbox text, p_bodies bytea[], p_delays float8[], p_reply_to text[], p_generations bigint[])
RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    INSERT INTO {schema}.message (mailbox, visible_at, enqueued_at, generation, reply_to, body)
    SELECT p_mailbox, v_now + make_interval(secs => coalesce(p_delays[n], 0)), v_now, coalesce(p_generations[n], 0),
           p_reply_to[n], body
    FROM unnest(p_bodies) WITH ORDINALITY AS batch (body, n)
    ORDER BY n
    RETURNING id;
    PERFORM {schema}.ring('m/' || p_mailbox);
END $$;

-- Queue a message with a key, or say which generation is in its way. Locks the key first, then its message: as everywhere.
CREATE FUNCTION {schema}.send_keyed(p_mailbox text, p_body bytea, p_delay float8, p_reply_to text, p_generation bigint, p_key text,
    OUT o_id bigint, OUT o_current bigint, OUT o_revoked boolean)
LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_key {schema}.key;
    v_checkpoint bytea;
BEGIN
    o_id := nextval({sequence});
    LOOP
        INSERT INTO {schema}.key (mailbox, key, generation, message, check_at)
        VALUES (p_mailbox, p_key, p_generation, o_id, v_now + {memory})
        ON CONFLICT DO NOTHING;
        EXIT WHEN FOUND;
        SELECT * INTO v_key FROM {schema}.key k WHERE k.mailbox = p_mailbox AND k.key = p_key FOR UPDATE;
        CONTINUE WHEN NOT FOUND;  -- the janitor was faster
        IF v_key.revoked OR v_key.generation >= p_generation THEN
            o_current := v_key.generation;
            o_revoked := v_key.revoked;
            RETURN;
        END IF;
        DELETE FROM {schema}.message m WHERE m.id = v_key.message RETURNING m.checkpoint INTO v_checkpoint;
        IF NOT FOUND THEN
            v_checkpoint := v_key.checkpoint;
        END IF;
        UPDATE {schema}.key k
        SET generation = p_generation, message = o_id, ended = false, checkpoint = NULL, check_at = v_now + {memory}
        WHERE k.mailbox = p_mailbox AND k.key = p_key;
        EXIT;
    END LOOP;
    INSERT INTO {schema}.message (id, mailbox, visible_at, enqueued_at, generation, key, reply_to, checkpoint, body)
    VALUES (o_id, p_mailbox, v_now + make_interval(secs => p_delay), v_now, p_generation, p_key, p_reply_to, v_checkpoint, p_body);
    PERFORM {schema}.ring('m/' || p_mailbox);
END $$;

-- Queue several of which some have keys, in order.
CREATE FUNCTION {schema}.send_mixed(p_mailbox text, p_bodies bytea[], p_delays float8[], p_reply_to text[], p_generations bigint[], p_keys text[])
RETURNS TABLE (o_id bigint, o_current bigint, o_revoked boolean) LANGUAGE plpgsql {planner} AS $$
BEGIN
    -- One batch with keys after the other: two that bring the same keys in another order would wait for each other for ever.
    -- Locking the rows in one order is not enough, since a key that is new has no row yet.
    PERFORM pg_advisory_xact_lock({batches}, hashtext(p_mailbox));
    FOR n IN 1 .. cardinality(p_bodies) LOOP
        IF p_keys[n] IS NULL THEN
            o_id := {schema}.send(p_mailbox, p_bodies[n], p_delays[n], p_reply_to[n], p_generations[n]);
            o_current := NULL;
            o_revoked := NULL;
        ELSE
            SELECT s.o_id, s.o_current, s.o_revoked INTO o_id, o_current, o_revoked
            FROM {schema}.send_keyed(p_mailbox, p_bodies[n], p_delays[n], p_reply_to[n], p_generations[n], p_keys[n]) s;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- Queue several of several mailboxes, in order.
CREATE FUNCTION {schema}.send_across(p_mailboxes text[], p_bodies bytea[], p_delays float8[], p_reply_to text[], p_generations bigint[], p_keys text[])
RETURNS TABLE (o_id bigint, o_current bigint, o_revoked boolean) LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_lock integer;
BEGIN
    -- The locks of send_mixed, in one order whoever sends: two that bring the same mailboxes in another order would wait for each other for ever.
    FOR v_lock IN SELECT DISTINCT hashtext(name) AS lock FROM unnest(p_mailboxes) AS name ORDER BY lock LOOP
        PERFORM pg_advisory_xact_lock({batches}, v_lock);
    END LOOP;
    FOR n IN 1 .. cardinality(p_bodies) LOOP
        IF p_keys[n] IS NULL THEN
            o_id := {schema}.send(p_mailboxes[n], p_bodies[n], p_delays[n], p_reply_to[n], p_generations[n]);
            o_current := NULL;
            o_revoked := NULL;
        ELSE
            SELECT s.o_id, s.o_current, s.o_revoked INTO o_id, o_current, o_revoked
            FROM {schema}.send_keyed(p_mailboxes[n], p_bodies[n], p_delays[n], p_reply_to[n], p_generations[n], p_keys[n]) s;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- Withdraw a key for good; whether that hit a live message.
CREATE FUNCTION {schema}.revoke(p_mailbox text, p_key text) RETURNS boolean LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_message bigint;
BEGIN
    INSERT INTO {schema}.key AS k (mailbox, key, generation, revoked, check_at)
    VALUES (p_mailbox, p_key, -1, true, clock_timestamp() + {memory})
    ON CONFLICT (mailbox, key) DO UPDATE SET revoked = true, ended = false, checkpoint = NULL, check_at = excluded.check_at
    RETURNING k.message INTO v_message;
    DELETE FROM {schema}.step s WHERE s.mailbox = p_mailbox AND s.key = p_key;
    DELETE FROM {schema}.message m WHERE m.id = v_message;
    RETURN FOUND;
END $$;

-- Take the message of a key back, up to a generation, unless it is leased. Locks the key first, then its message: as everywhere.
CREATE FUNCTION {schema}.withdraw(p_mailbox text, p_key text, p_generation bigint) RETURNS text LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_key {schema}.key;
    v_leased boolean;
    v_checkpoint bytea;
BEGIN
    SELECT * INTO v_key FROM {schema}.key k WHERE k.mailbox = p_mailbox AND k.key = p_key FOR UPDATE;
    SELECT m.token IS NOT NULL AND m.visible_at > clock_timestamp(), m.checkpoint INTO v_leased, v_checkpoint
    FROM {schema}.message m WHERE m.id = v_key.message AND v_key.generation <= p_generation FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'absent';
    END IF;
    IF v_leased THEN
        RETURN 'leased';
    END IF;
    DELETE FROM {schema}.message m WHERE m.id = v_key.message;
    UPDATE {schema}.key k SET checkpoint = v_checkpoint WHERE k.mailbox = p_mailbox AND k.key = p_key;
    RETURN 'withdrawn';
END $$;

-- Look at keys whose time has come, and at expired values; how many rows there were (p_most: come again).
CREATE FUNCTION {schema}.tidy(p_most integer) RETURNS integer LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_key {schema}.key;
    v_seen integer := 0;
    v_values integer;
BEGIN
    IF NOT pg_try_advisory_xact_lock({janitor}, 0) THEN
        RETURN 0;  -- somebody else is at it
    END IF;
    FOR v_key IN
        SELECT * FROM {schema}.key k WHERE k.check_at <= v_now ORDER BY k.check_at LIMIT p_most FOR UPDATE SKIP LOCKED
    LOOP
        v_seen := v_seen + 1;
        IF EXISTS (SELECT 1 FROM {schema}.message m WHERE m.id = v_key.message) THEN
            UPDATE {schema}.key k SET check_at = v_now + {memory} WHERE k.mailbox = v_key.mailbox AND k.key = v_key.key;
        ELSIF v_key.ended OR v_key.revoked THEN
            DELETE FROM {schema}.key k WHERE k.mailbox = v_key.mailbox AND k.key = v_key.key;
        ELSE  -- it ended at some time since we last looked: a day from now is late enough for sure
            UPDATE {schema}.key k SET ended = true, check_at = v_now + {memory}
            WHERE k.mailbox = v_key.mailbox AND k.key = v_key.key;
        END IF;
    END LOOP;
    WITH due AS MATERIALIZED (
        SELECT s.name, s.key, s.value IS NOT NULL AND s.fence_generation IS NOT NULL AS keep FROM {schema}.store s
        WHERE s.expires_at <= v_now ORDER BY s.expires_at LIMIT p_most FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM {schema}.store s USING due WHERE s.name = due.name AND s.key = due.key AND NOT due.keep
    ), kept AS (
        UPDATE {schema}.store s SET value = NULL, expires_at = v_now + {memory} FROM due
        WHERE s.name = due.name AND s.key = due.key AND due.keep
    )
    SELECT count(*) INTO v_values FROM due;
    RETURN greatest(v_seen, v_values);
END $$;
