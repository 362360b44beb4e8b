-- The journal, and who may write it: appends, snapshots, elections.

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

-- Append one entry as `append` does; if it is written, queue messages as `send_across` does and acknowledge deliveries, all in this transaction.
-- One row of kind 0 (o_a is the sequence, or null with the head's sequence and epoch after it), one of kind 1 for each message (as `send_across`)
-- and one of kind 2 for each delivery that was held. The journal's head is locked before anything else, so that two of these cannot meet crosswise.
CREATE FUNCTION {schema}.append_with(p_name text, p_events bytea[], p_epoch bigint, p_expect bigint, p_append_id text,
    p_mailboxes text[], p_bodies bytea[], p_delays float8[], p_reply_to text[], p_generations bigint[], p_keys text[],
    p_ids bigint[], p_tokens bigint[])
RETURNS TABLE (o_kind smallint, o_a bigint, o_b bigint, o_c bigint, o_revoked boolean) LANGUAGE plpgsql {planner} AS $$
BEGIN
    o_kind := 0;
    SELECT a.o_seq, a.o_last, a.o_epoch INTO o_a, o_b, o_c
    FROM {schema}.append(p_name, p_events, p_epoch, p_expect, p_append_id) a;
    RETURN NEXT;
    IF o_a IS NULL THEN
        RETURN;
    END IF;
    IF cardinality(p_bodies) > 0 THEN
        RETURN QUERY SELECT 1::smallint, s.o_id, s.o_current, NULL::bigint, s.o_revoked
        FROM {schema}.send_across(p_mailboxes, p_bodies, p_delays, p_reply_to, p_generations, p_keys) s;
    END IF;
    IF cardinality(p_ids) > 0 THEN
        RETURN QUERY SELECT 2::smallint, held, NULL::bigint, NULL::bigint, NULL::boolean
        FROM {schema}.acknowledge_many(p_ids, p_tokens) held;
    END IF;
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
