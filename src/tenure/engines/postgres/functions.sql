-- One function per operation: one round trip, one transaction, one plan that is kept for the session.
--
-- {planner} makes each plan independent of statistics: "SET enable_seqscan = off" and the like, so that a plan made while a
-- table was empty is still the index scan that it has to be when there are a million rows. No ANALYZE is ever needed.
-- Names of parameters begin with p_, of variables with v_, of results with o_.

-- Tell who waits on a topic, if anybody does; last in its transaction.
-- A waiter holds the lock "waiters" in shared mode, then passes once through the lock "senders" alone (listen). So either we see
-- it here and notify, or it waits there until we have committed, and sees what we wrote. Without waiters nothing is
-- notified: NOTIFY makes commits wait for each other.
CREATE FUNCTION {schema}.ring(p_topic text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared({senders}, hashtext(p_topic));
    IF pg_try_advisory_lock({waiters}, hashtext(p_topic)) THEN
        PERFORM pg_advisory_unlock({waiters}, hashtext(p_topic));
    ELSE
        PERFORM pg_notify({channel} || md5(p_topic), '');
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
    -- In one order for all batches, so that two of them do not wait for each other.
    PERFORM 1 FROM {schema}.key k WHERE k.mailbox = p_mailbox AND k.key = ANY (p_keys) ORDER BY k.key FOR UPDATE;
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

-- Lease up to p_max messages that are due, oldest first (index message_due). Looks from p_floor on, and below it only if that
-- was not enough. With nothing due: one row without an id, whose o_due says in how many seconds something will be, if p_look, and
-- whose o_enqueued_at says how long the search took.
CREATE FUNCTION {schema}.claim(p_mailbox text, p_max integer, p_lease float8, p_token bigint, p_stage smallint,
    p_limit integer, p_floor float8, p_look boolean)
RETURNS TABLE (o_id bigint, o_due float8, o_deliveries integer, o_enqueued_at float8, o_exhausted integer, o_generation bigint,
    o_failure boolean, o_key text, o_reply_to text, o_checkpoint bytea, o_body bytea, o_forgiven integer)
LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_from timestamptz := coalesce(to_timestamp(p_floor), '-infinity');
    v_below timestamptz := 'infinity';
    v_left integer := p_max;
    v_found integer;
    v_next timestamptz;
BEGIN
    IF p_stage = 0 THEN
        -- Work starts with an extension, which is durable. A crash may undo this claim: then that extension is refused.
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    LOOP
        RETURN QUERY
        WITH picked AS MATERIALIZED (
            SELECT m.id, m.visible_at,
                   m.deliveries - CASE WHEN m.token IS NOT NULL AND m.stage = 0 THEN 1 ELSE 0 END AS counted
            FROM {schema}.message m
            WHERE m.mailbox = p_mailbox AND m.visible_at >= v_from AND m.visible_at <= v_now AND m.visible_at < v_below
            ORDER BY m.visible_at, m.id
            LIMIT v_left
            FOR UPDATE SKIP LOCKED
        )
        UPDATE {schema}.message m
        SET token = p_token,
            stage = p_stage,
            visible_at = v_now + make_interval(secs => p_lease),
            deliveries = p.counted + CASE WHEN p.counted - m.base >= p_limit THEN 0 ELSE 1 END
        FROM picked p
        WHERE m.id = p.id
        RETURNING m.id, date_part('epoch', p.visible_at), m.deliveries, date_part('epoch', m.enqueued_at),
                  CASE WHEN p.counted - m.base >= p_limit THEN p.counted - m.base END, m.generation, m.failure, m.key, m.reply_to, m.checkpoint, m.body, m.base;
        GET DIAGNOSTICS v_found = ROW_COUNT;
        v_left := v_left - v_found;
        EXIT WHEN v_left = 0 OR v_from = '-infinity';
        v_below := v_from;
        v_from := '-infinity';
    END LOOP;
    IF v_left = p_max THEN
        IF p_look THEN
            SELECT m.visible_at INTO v_next FROM {schema}.message m
            WHERE m.mailbox = p_mailbox AND m.visible_at > v_now ORDER BY m.visible_at LIMIT 1;
        END IF;
        o_due := date_part('epoch', v_next - v_now);
        o_enqueued_at := date_part('epoch', clock_timestamp() - v_now);
        RETURN NEXT;
    END IF;
END $$;

-- Give back what a claim took whose answer never arrived: nobody has these deliveries.
CREATE FUNCTION {schema}.give_back(p_mailbox text, p_tokens bigint[]) RETURNS void LANGUAGE plpgsql {planner} AS $$
BEGIN
    UPDATE {schema}.message m
    SET token = NULL, deliveries = m.deliveries - 1, visible_at = m.enqueued_at
    WHERE m.mailbox = p_mailbox AND m.visible_at > clock_timestamp() AND m.token = ANY (p_tokens) AND m.stage < 2;
    IF FOUND THEN
        PERFORM {schema}.ring('m/' || p_mailbox);
    END IF;
END $$;

-- Remove a message that this delivery holds. False: it does not hold it any more.
CREATE FUNCTION {schema}.acknowledge(p_id bigint, p_token bigint, p_mailbox text, p_key text) RETURNS boolean
LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_checkpoint bytea;
BEGIN
    -- The checkpoint waits for a next generation, in the key, which is always locked before its message.
    IF p_key IS NOT NULL AND EXISTS (SELECT 1 FROM {schema}.message m WHERE m.id = p_id AND m.checkpoint IS NOT NULL) THEN
        PERFORM 1 FROM {schema}.key k WHERE k.mailbox = p_mailbox AND k.key = p_key FOR UPDATE;
    END IF;
    DELETE FROM {schema}.message m WHERE m.id = p_id AND m.token = p_token AND m.visible_at > clock_timestamp()
    RETURNING m.checkpoint INTO v_checkpoint;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF p_key IS NOT NULL AND v_checkpoint IS NOT NULL THEN
        UPDATE {schema}.key k SET checkpoint = v_checkpoint WHERE k.mailbox = p_mailbox AND k.key = p_key AND k.message = p_id;
    END IF;
    RETURN true;
END $$;

-- Acknowledge several deliveries in one step; the ids of those that were held.
CREATE FUNCTION {schema}.acknowledge_many(p_ids bigint[], p_tokens bigint[]) RETURNS SETOF bigint
LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_held record;
BEGIN
    -- First those that leave a checkpoint to their key: keys are always locked before messages.
    FOR v_held IN
        SELECT m.id, m.token, m.mailbox, m.key FROM unnest(p_ids, p_tokens) AS t (id, token)
        JOIN {schema}.message m ON m.id = t.id AND m.token = t.token
        WHERE m.key IS NOT NULL AND m.checkpoint IS NOT NULL ORDER BY m.mailbox, m.key
    LOOP
        IF {schema}.acknowledge(v_held.id, v_held.token, v_held.mailbox, v_held.key) THEN
            RETURN NEXT v_held.id;
        END IF;
    END LOOP;
    RETURN QUERY
    DELETE FROM {schema}.message m USING unnest(p_ids, p_tokens) AS t (id, token)
    WHERE m.id = t.id AND m.token = t.token AND m.visible_at > clock_timestamp() AND (m.key IS NULL OR m.checkpoint IS NULL)
    RETURNING m.id;
END $$;

-- Put an answer into a mailbox, within the caller's transaction.
CREATE FUNCTION {schema}.post(p_mailbox text, p_body bytea, p_failure boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    INSERT INTO {schema}.message (mailbox, visible_at, enqueued_at, generation, failure, body)
    VALUES (p_mailbox, v_now, v_now, 0, p_failure, p_body);
    PERFORM {schema}.ring('m/' || p_mailbox);
END $$;

-- Answer and stay the holder.
CREATE FUNCTION {schema}.reply(p_id bigint, p_token bigint, p_reply_to text, p_body bytea) RETURNS boolean
LANGUAGE plpgsql {planner} AS $$
BEGIN
    PERFORM 1 FROM {schema}.message m WHERE m.id = p_id AND m.token = p_token AND m.visible_at > clock_timestamp() FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM {schema}.post(p_reply_to, p_body, false);
    RETURN true;
END $$;

-- Answer and acknowledge: both or neither.
CREATE FUNCTION {schema}.settle(p_id bigint, p_token bigint, p_mailbox text, p_key text, p_reply_to text, p_body bytea) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT {schema}.acknowledge(p_id, p_token, p_mailbox, p_key) THEN
        RETURN false;
    END IF;
    PERFORM {schema}.post(p_reply_to, p_body, false);
    RETURN true;
END $$;

-- Hold it for longer, never for shorter; from the first extension on the delivery counts.
CREATE FUNCTION {schema}.extend(p_id bigint, p_token bigint, p_seconds float8, p_checkpoint bytea) RETURNS boolean
LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    UPDATE {schema}.message m
    SET visible_at = greatest(m.visible_at, v_now + make_interval(secs => p_seconds)),
        stage = 2,
        checkpoint = coalesce(p_checkpoint, m.checkpoint)
    WHERE m.id = p_id AND m.token = p_token AND m.visible_at > clock_timestamp();
    RETURN FOUND;
END $$;

-- Move a message to the dead letters and tell whoever waits for its reply.
CREATE FUNCTION {schema}.bury(p_id bigint, p_token bigint, p_cause text, p_reason text) RETURNS boolean
LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_message {schema}.message;
BEGIN
    PERFORM 1 FROM {schema}.key k
    WHERE (k.mailbox, k.key) = (SELECT m.mailbox, m.key FROM {schema}.message m WHERE m.id = p_id) FOR UPDATE;
    DELETE FROM {schema}.message m WHERE m.id = p_id AND m.token = p_token AND m.visible_at > clock_timestamp()
    RETURNING * INTO v_message;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO {schema}.dead_letter (id, mailbox, cause, reason, died_at, enqueued_at, generation, deliveries, failure, key,
                                      reply_to, checkpoint, body)
    VALUES (p_id, v_message.mailbox, p_cause, p_reason, v_now, v_message.enqueued_at, v_message.generation,
            v_message.deliveries, v_message.failure, v_message.key, v_message.reply_to, v_message.checkpoint, v_message.body);
    IF v_message.key IS NOT NULL AND v_message.checkpoint IS NOT NULL THEN
        UPDATE {schema}.key k SET checkpoint = v_message.checkpoint
        WHERE k.mailbox = v_message.mailbox AND k.key = v_message.key AND k.message = p_id;
    END IF;
    IF v_message.reply_to IS NOT NULL THEN
        PERFORM {schema}.post(v_message.reply_to, convert_to(json_build_object(
            'message_id', p_id::text, 'mailbox', v_message.mailbox, 'cause', p_cause, 'reason', p_reason,
            'key', v_message.key, 'generation', v_message.generation, 'delivery_count', v_message.deliveries
        )::text, 'UTF8'), true);
    END IF;
    RETURN true;
END $$;

-- Give a message back after p_delay; the delivery counts, and the last one that was allowed makes it a dead letter.
CREATE FUNCTION {schema}.nack(p_id bigint, p_token bigint, p_delay float8, p_limit integer) RETURNS boolean
LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_times integer;
    v_mailbox text;
BEGIN
    IF p_limit IS NOT NULL THEN
        SELECT m.deliveries - m.base INTO v_times FROM {schema}.message m WHERE m.id = p_id AND m.token = p_token;
        IF v_times >= p_limit THEN
            RETURN {schema}.bury(p_id, p_token, 'deliveries', {schema}.exhausted(v_times));
        END IF;
    END IF;
    UPDATE {schema}.message m SET token = NULL, visible_at = v_now + make_interval(secs => p_delay)
    WHERE m.id = p_id AND m.token = p_token AND m.visible_at > clock_timestamp()
    RETURNING m.mailbox INTO v_mailbox;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM {schema}.ring('m/' || v_mailbox);
    RETURN true;
END $$;

CREATE FUNCTION {schema}.exhausted(p_times integer) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT 'delivered ' || p_times || CASE WHEN p_times = 1 THEN ' time' ELSE ' times' END || ' without being settled'
$$;

-- Give work back to where it came from, the front; the delivery does not count. One that had started keeps its number, and is
-- forgiven.
CREATE FUNCTION {schema}.release(p_id bigint, p_token bigint) RETURNS boolean LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_mailbox text;
BEGIN
    UPDATE {schema}.message m
    SET token = NULL, visible_at = m.enqueued_at, deliveries = m.deliveries - CASE WHEN m.stage < 2 THEN 1 ELSE 0 END,
        base = m.base + CASE WHEN m.stage < 2 THEN 0 ELSE 1 END
    WHERE m.id = p_id AND m.token = p_token AND m.visible_at > clock_timestamp()
    RETURNING m.mailbox INTO v_mailbox;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM {schema}.ring('m/' || v_mailbox);
    RETURN true;
END $$;

-- Why a receipt is dead.
CREATE FUNCTION {schema}.why_dead(p_id bigint, p_token bigint) RETURNS text LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_token bigint;
BEGIN
    SELECT coalesce(m.token, 0) INTO v_token FROM {schema}.message m WHERE m.id = p_id;
    RETURN CASE
        WHEN v_token = p_token THEN 'its lease ran out'
        WHEN v_token > 0 THEN 'its lease ran out, and it was delivered again'
        WHEN v_token = 0 THEN 'it was given back'
        WHEN EXISTS (SELECT 1 FROM {schema}.dead_letter d WHERE d.id = p_id) THEN 'it is a dead letter'
        ELSE 'it was settled, replaced, revoked or purged'
    END;
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
    DELETE FROM {schema}.message m WHERE m.id = v_message;
    RETURN FOUND;
END $$;

CREATE FUNCTION {schema}.depth(p_mailbox text, OUT o_ready bigint, OUT o_delayed bigint, OUT o_leased bigint)
LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    SELECT count(*) FILTER (WHERE m.visible_at <= v_now),
           count(*) FILTER (WHERE m.visible_at > v_now AND m.token IS NULL),
           count(*) FILTER (WHERE m.visible_at > v_now AND m.token IS NOT NULL)
    INTO o_ready, o_delayed, o_leased FROM {schema}.message m WHERE m.mailbox = p_mailbox;
END $$;

-- Remove every message; keys stay, with the checkpoints of what they carried.
CREATE FUNCTION {schema}.purge(p_mailbox text) RETURNS bigint LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_gone bigint;
BEGIN
    WITH gone AS (
        DELETE FROM {schema}.message m WHERE m.mailbox = p_mailbox RETURNING m.id, m.key, m.checkpoint
    ), kept AS (
        UPDATE {schema}.key k SET checkpoint = gone.checkpoint FROM gone
        WHERE k.mailbox = p_mailbox AND k.key = gone.key AND k.message = gone.id AND gone.checkpoint IS NOT NULL
    )
    SELECT count(*) INTO v_gone FROM gone;
    RETURN v_gone;
END $$;

-- Dead letters, oldest first, after the one with that id.
CREATE FUNCTION {schema}.dead_letters(p_mailbox text, p_limit integer, p_after bigint)
RETURNS TABLE (o_id bigint, o_cause text, o_reason text, o_died_at float8, o_enqueued_at float8, o_deliveries integer,
    o_generation bigint, o_key text, o_reply_to text, o_checkpoint bytea, o_body bytea)
LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_after bigint := 0;
BEGIN
    SELECT d.number INTO v_after FROM {schema}.dead_letter d WHERE d.id = p_after AND d.mailbox = p_mailbox;
    RETURN QUERY
    SELECT d.id, d.cause, d.reason, date_part('epoch', d.died_at), date_part('epoch', d.enqueued_at), d.deliveries,
           d.generation, d.key, d.reply_to, d.checkpoint, d.body
    FROM {schema}.dead_letter d WHERE d.mailbox = p_mailbox AND d.number > coalesce(v_after, 0)
    ORDER BY d.number LIMIT p_limit;
END $$;

-- Put a dead letter back. o_found false: there is none; o_current: the generation that is in its way.
CREATE FUNCTION {schema}.replay(p_mailbox text, p_id bigint, OUT o_found boolean, OUT o_key text, OUT o_generation bigint,
    OUT o_current bigint, OUT o_revoked boolean)
LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_letter {schema}.dead_letter;
    v_key {schema}.key;
BEGIN
    SELECT * INTO v_letter FROM {schema}.dead_letter d WHERE d.id = p_id AND d.mailbox = p_mailbox FOR UPDATE;
    o_found := FOUND;
    IF NOT o_found THEN
        RETURN;
    END IF;
    IF v_letter.key IS NOT NULL THEN
        o_key := v_letter.key;
        o_generation := v_letter.generation;
        INSERT INTO {schema}.key (mailbox, key, generation, message, check_at)
        VALUES (p_mailbox, o_key, o_generation, p_id, v_now + {memory}) ON CONFLICT DO NOTHING;
        SELECT * INTO v_key FROM {schema}.key k WHERE k.mailbox = p_mailbox AND k.key = o_key FOR UPDATE;
        IF v_key.revoked OR v_key.generation > o_generation OR v_key.message IS DISTINCT FROM p_id THEN
            o_current := v_key.generation;
            o_revoked := v_key.revoked;
            RETURN;
        END IF;
        UPDATE {schema}.key k SET ended = false, checkpoint = NULL, check_at = v_now + {memory}
        WHERE k.mailbox = p_mailbox AND k.key = o_key;
    END IF;
    DELETE FROM {schema}.dead_letter d WHERE d.id = p_id;
    INSERT INTO {schema}.message (id, mailbox, visible_at, enqueued_at, generation, deliveries, base, failure, key, reply_to,
                                  checkpoint, body)
    VALUES (p_id, p_mailbox, v_now, v_letter.enqueued_at, v_letter.generation, v_letter.deliveries, v_letter.deliveries,
            v_letter.failure, v_letter.key, v_letter.reply_to, v_letter.checkpoint, v_letter.body);
    PERFORM {schema}.ring('m/' || p_mailbox);
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

-- Write one entry after p_expect, if it is the last and no higher epoch has written; otherwise o_seq is null.
CREATE FUNCTION {schema}.append(p_name text, p_events bytea[], p_epoch bigint, p_expect bigint, p_append_id text,
    OUT o_seq bigint, OUT o_last bigint, OUT o_epoch bigint)
LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_at timestamptz;
BEGIN
    IF p_expect = 0 THEN
        INSERT INTO {schema}.journal_head (name) VALUES (p_name) ON CONFLICT DO NOTHING;
    END IF;
    UPDATE {schema}.journal_head h
    SET seq = h.seq + 1, epoch = p_epoch, at = greatest(h.at, clock_timestamp())
    WHERE h.name = p_name AND h.seq = p_expect AND h.epoch <= p_epoch
    RETURNING h.seq, h.at INTO o_seq, v_at;
    IF NOT FOUND THEN
        SELECT h.seq, h.epoch INTO o_last, o_epoch FROM {schema}.journal_head h WHERE h.name = p_name;
        o_last := coalesce(o_last, 0);
        o_epoch := coalesce(o_epoch, 0);
        RETURN;
    END IF;
    INSERT INTO {schema}.journal_entry (name, seq, epoch, at, append_id, events)
    VALUES (p_name, o_seq, p_epoch, v_at, p_append_id, p_events);
    PERFORM {schema}.ring('j/' || p_name);
END $$;

CREATE FUNCTION {schema}.head(p_name text) RETURNS TABLE (o_seq bigint, o_epoch bigint) LANGUAGE plpgsql {planner} AS $$
BEGIN
    RETURN QUERY SELECT h.seq, h.epoch FROM {schema}.journal_head h WHERE h.name = p_name;
END $$;

-- Entries above p_after, in order; when some of them are gone, a last row with only o_truncated.
-- The head is read after them: a truncation that slipped in between is then seen, and never taken for a gap.
CREATE FUNCTION {schema}.read(p_name text, p_after bigint, p_limit integer)
RETURNS TABLE (o_truncated bigint, o_seq bigint, o_epoch bigint, o_append_id text, o_at float8, o_events bytea[])
LANGUAGE plpgsql {planner} AS $$
BEGIN
    RETURN QUERY
    SELECT NULL::bigint, e.seq, e.epoch, e.append_id, date_part('epoch', e.at), e.events
    FROM {schema}.journal_entry e WHERE e.name = p_name AND e.seq > p_after ORDER BY e.seq LIMIT p_limit;
    SELECT h.truncated INTO o_truncated FROM {schema}.journal_head h WHERE h.name = p_name AND h.truncated > p_after;
    IF FOUND THEN
        RETURN NEXT;
    END IF;
END $$;

-- Keep a snapshot, or say what is newer: o_refused is 'epoch', 'seq' or 'ahead', with the value that stands against it.
CREATE FUNCTION {schema}.snapshot(p_name text, p_state bytea, p_seq bigint, p_epoch bigint, OUT o_refused text, OUT o_current bigint)
LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_head {schema}.journal_head;
    v_seq bigint;
    v_epoch bigint;
BEGIN
    SELECT * INTO v_head FROM {schema}.journal_head h WHERE h.name = p_name FOR UPDATE;
    SELECT s.seq, s.epoch INTO v_seq, v_epoch FROM {schema}.journal_snapshot s WHERE s.name = p_name;
    IF p_epoch < greatest(v_head.epoch, v_epoch) THEN
        o_refused := 'epoch';
        o_current := greatest(v_head.epoch, v_epoch);
    ELSIF p_seq > coalesce(v_head.seq, 0) THEN
        o_refused := 'ahead';
        o_current := coalesce(v_head.seq, 0);
    ELSIF p_seq < v_seq THEN
        o_refused := 'seq';
        o_current := v_seq;
    ELSE
        INSERT INTO {schema}.journal_snapshot (name, seq, epoch, state) VALUES (p_name, p_seq, p_epoch, p_state)
        ON CONFLICT (name) DO UPDATE SET seq = excluded.seq, epoch = excluded.epoch, state = excluded.state;
    END IF;
END $$;

CREATE FUNCTION {schema}.latest_snapshot(p_name text) RETURNS TABLE (o_seq bigint, o_epoch bigint, o_state bytea)
LANGUAGE plpgsql {planner} AS $$
BEGIN
    RETURN QUERY SELECT s.seq, s.epoch, s.state FROM {schema}.journal_snapshot s WHERE s.name = p_name;
END $$;

-- Forget entries up to p_seq, at most up to the snapshot.
CREATE FUNCTION {schema}.truncate(p_name text, p_seq bigint) RETURNS void LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_seq bigint;
BEGIN
    SELECT least(p_seq, s.seq) INTO v_seq FROM {schema}.journal_snapshot s WHERE s.name = p_name;
    UPDATE {schema}.journal_head h SET truncated = v_seq WHERE h.name = p_name AND h.truncated < v_seq;
    IF FOUND THEN
        DELETE FROM {schema}.journal_entry e WHERE e.name = p_name AND e.seq <= v_seq;
    END IF;
END $$;

-- Take the seat if it is free or ours already; no row when somebody else has it. The epoch always grows.
CREATE FUNCTION {schema}.campaign(p_name text, p_candidate text, p_ttl float8, p_above bigint) RETURNS SETOF bigint
LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    INSERT INTO {schema}.election AS e (name, epoch, candidate, expires_at)
    VALUES (p_name, p_above + 1, p_candidate, v_now + make_interval(secs => p_ttl))
    ON CONFLICT (name) DO UPDATE
    SET epoch = greatest(e.epoch, p_above) + 1, candidate = p_candidate,
        expires_at = clock_timestamp() + make_interval(secs => p_ttl)
    WHERE e.candidate = p_candidate OR e.expires_at <= clock_timestamp()
    RETURNING e.epoch;
END $$;

-- Another ttl in the same epoch: null when it was done, otherwise the newest epoch.
CREATE FUNCTION {schema}.renew(p_name text, p_epoch bigint, p_ttl float8) RETURNS bigint LANGUAGE plpgsql {planner} AS $$
BEGIN
    UPDATE {schema}.election e SET expires_at = clock_timestamp() + make_interval(secs => p_ttl)
    WHERE e.name = p_name AND e.epoch = p_epoch AND e.expires_at > clock_timestamp();
    IF FOUND THEN
        RETURN NULL;
    END IF;
    RETURN coalesce((SELECT e.epoch FROM {schema}.election e WHERE e.name = p_name), 0);
END $$;

CREATE FUNCTION {schema}.resign(p_name text, p_epoch bigint) RETURNS void LANGUAGE plpgsql {planner} AS $$
BEGIN
    UPDATE {schema}.election e SET expires_at = '-infinity' WHERE e.name = p_name AND e.epoch = p_epoch;
END $$;

CREATE FUNCTION {schema}.leader(p_name text) RETURNS TABLE (o_candidate text, o_epoch bigint, o_expires_in float8)
LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY SELECT e.candidate, e.epoch, date_part('epoch', e.expires_at - v_now) FROM {schema}.election e
    WHERE e.name = p_name AND e.expires_at > v_now;
END $$;

-- Write a value, unless a higher fence has written its key: then that one.
CREATE FUNCTION {schema}.put(p_name text, p_key text, p_value bytea, p_generation bigint, p_delivery bigint, p_ttl float8)
RETURNS TABLE (o_generation bigint, o_delivery bigint) LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_expires timestamptz := clock_timestamp() + make_interval(secs => p_ttl);
BEGIN
    INSERT INTO {schema}.store AS s (name, key, fence_generation, fence_delivery, expires_at, value)
    VALUES (p_name, p_key, p_generation, p_delivery, v_expires, p_value)
    ON CONFLICT (name, key) DO UPDATE
    SET value = excluded.value, expires_at = excluded.expires_at,
        fence_generation = coalesce(excluded.fence_generation, s.fence_generation),
        fence_delivery = coalesce(excluded.fence_delivery, s.fence_delivery)
    WHERE p_generation IS NULL OR s.fence_generation IS NULL
       OR (s.fence_generation, s.fence_delivery) <= (p_generation, p_delivery);
    IF NOT FOUND THEN
        RETURN QUERY SELECT s.fence_generation, s.fence_delivery FROM {schema}.store s WHERE s.name = p_name AND s.key = p_key;
    END IF;
END $$;

CREATE FUNCTION {schema}.get(p_name text, p_key text) RETURNS bytea LANGUAGE plpgsql {planner} AS $$
BEGIN
    RETURN (SELECT s.value FROM {schema}.store s WHERE s.name = p_name AND s.key = p_key
            AND (s.expires_at IS NULL OR s.expires_at > clock_timestamp()));
END $$;

-- Remove a value; its fence, if it has one, stays for a day.
CREATE FUNCTION {schema}.remove(p_name text, p_key text) RETURNS boolean LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    UPDATE {schema}.store s SET value = NULL, expires_at = v_now + {memory}
    WHERE s.name = p_name AND s.key = p_key AND s.value IS NOT NULL AND (s.expires_at IS NULL OR s.expires_at > v_now)
      AND s.fence_generation IS NOT NULL;
    IF FOUND THEN
        RETURN true;
    END IF;
    DELETE FROM {schema}.store s
    WHERE s.name = p_name AND s.key = p_key AND s.value IS NOT NULL AND (s.expires_at IS NULL OR s.expires_at > v_now);
    RETURN FOUND;
END $$;

-- Keys from p_from on, below p_below, in order.
CREATE FUNCTION {schema}.list(p_name text, p_from text, p_after text, p_below text, p_limit integer) RETURNS SETOF text
LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY SELECT s.key FROM {schema}.store s
    WHERE s.name = p_name AND s.key >= p_from AND (p_after IS NULL OR s.key > p_after) AND (p_below IS NULL OR s.key < p_below)
      AND s.value IS NOT NULL AND (s.expires_at IS NULL OR s.expires_at > v_now)
    ORDER BY s.key LIMIT p_limit;
END $$;
