-- How messages are claimed, and what becomes of a delivery.

-- Lease up to p_max messages that are due, oldest first (index message_due). Looks from p_floor on, and below it only if that
-- was not enough. One whose lease ran out (it still has a token) is suspect: a batch ends before the first of them, and it comes
-- alone and counts from here on. With nothing due: one row without an id, whose o_due says in how many seconds something will be,
-- if p_look, and whose o_enqueued_at says how long the search took. Within a claim over several mailboxes: p_until is the end of the search, and
-- unless p_first a suspect message that comes first is left alone.
CREATE FUNCTION {schema}.lease(p_mailbox text, p_max integer, p_lease float8, p_token bigint, p_stage smallint,
    p_limit integer, p_floor float8, p_look boolean, p_until timestamptz DEFAULT 'infinity', p_first boolean DEFAULT true)
RETURNS TABLE (o_id bigint, o_due float8, o_deliveries integer, o_enqueued_at float8, o_exhausted integer, o_generation bigint,
    o_failure boolean, o_key text, o_reply_to text, o_checkpoint bytea, o_body bytea, o_forgiven integer, o_suspect boolean)
LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_from timestamptz := coalesce(to_timestamp(p_floor), '-infinity');
    v_below timestamptz := 'infinity';
    v_left integer := p_max;
    v_found integer;
    v_locked integer;
    v_next timestamptz;
BEGIN
    IF p_stage = 0 THEN
        -- Work starts with an extension, which is durable. A crash may undo this claim: then that extension is refused.
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    LOOP
        v_found := 0;
        FOR o_id, o_due, o_deliveries, o_enqueued_at, o_exhausted, o_generation, o_failure, o_key, o_reply_to, o_checkpoint,
            o_body, o_forgiven, o_suspect, v_locked IN
            WITH picked AS MATERIALIZED (
                SELECT m.id, m.visible_at, m.deliveries AS counted, m.token IS NOT NULL AS suspect,
                       m.base + CASE WHEN m.token IS NOT NULL AND m.stage = 0 THEN 1 ELSE 0 END AS forgiven
                FROM {schema}.message m
                WHERE m.mailbox = p_mailbox AND m.visible_at >= v_from AND m.visible_at <= least(v_now, p_until)
                      AND m.visible_at < v_below
                      AND (m.token IS NULL OR v_left = p_max)
                ORDER BY m.visible_at, m.id
                LIMIT v_left
                FOR UPDATE SKIP LOCKED
            ), ordered AS (
                SELECT p.*, count(*) OVER () AS locked, row_number() OVER w AS place, bool_or(p.suspect) OVER w AS cut
                FROM picked p
                WINDOW w AS (ORDER BY p.visible_at, p.id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
            )
            UPDATE {schema}.message m
            SET token = p_token,
                stage = CASE WHEN p.suspect THEN greatest(p_stage, 1::smallint) ELSE p_stage END,
                visible_at = v_now + make_interval(secs => p_lease),
                deliveries = p.counted + CASE WHEN p.counted - p.forgiven >= p_limit THEN 0 ELSE 1 END,
                base = p.forgiven
            FROM ordered p
            WHERE m.id = p.id AND ((p.place = 1 AND p_first) OR NOT p.cut)
            RETURNING m.id, date_part('epoch', p.visible_at), m.deliveries, date_part('epoch', m.enqueued_at),
                      CASE WHEN p.counted - p.forgiven >= p_limit THEN p.counted - p.forgiven END, m.generation, m.failure,
                      m.key, m.reply_to, m.checkpoint, m.body, m.base, p.suspect, p.locked
        LOOP
            v_found := v_found + 1;
            RETURN NEXT;
        END LOOP;
        v_left := v_left - v_found;
        IF v_locked > v_found THEN
            -- Others may have passed over what we locked and did not take.
            PERFORM {schema}.ring('m/' || p_mailbox);
        END IF;
        EXIT WHEN v_left = 0 OR v_locked > v_found OR o_suspect OR v_from = '-infinity';
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

-- The mailboxes of a cover, with the number of their rank.
CREATE FUNCTION {schema}.covered(p_cover text) RETURNS TABLE (mailbox text, rank integer) LANGUAGE sql IMMUTABLE AS $$
    SELECT name, number::integer FROM unnest(string_to_array(p_cover, ';')) WITH ORDINALITY AS ranks (names, number)
    CROSS JOIN LATERAL unnest(string_to_array(names, ',')) AS name
$$;

-- Settle deliveries, then lease up to p_max messages of several mailboxes: from the first rank first, and within a rank in the order in
-- which they became due. The cover is one text (ranks end with ';', names with ','), which costs a client less than arrays of hundreds; the
-- floors are for the mailboxes that p_known names. A settlement without a body acknowledges only. One row (o_kind) for each settlement that was not held (0; o_failure says
-- that the message is gone), each message (1, as `lease`), and where there is none, for when there will be (2).
-- Claims of the oldest mailbox up to where the next one's first message comes: lease does the rest.
CREATE FUNCTION {schema}.exchange(p_ids bigint[], p_tokens bigint[], p_reply_to text[], p_bodies bytea[], p_cover text,
    p_known text[], p_floors float8[], p_max integer, p_lease float8, p_token bigint, p_stage smallint, p_limit integer, p_look boolean)
RETURNS TABLE (o_kind smallint, o_mailbox text, o_id bigint, o_due float8, o_deliveries integer, o_enqueued_at float8, o_exhausted integer,
    o_generation bigint, o_failure boolean, o_key text, o_reply_to text, o_checkpoint bytea, o_body bytea, o_forgiven integer,
    o_suspect boolean)
LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_durable text := current_setting('synchronous_commit');
    v_held bigint[];
    v_left integer := p_max;
    v_names text[];
    v_heads timestamptz[];
    v_order integer[];
    v_floor float8[];
    v_at integer;
    v_next timestamptz;
    v_found integer;
    v_only boolean := p_cover !~ '[,;]';
BEGIN
    IF cardinality(p_ids) > 0 THEN
        SELECT array_agg(held) INTO v_held FROM {schema}.acknowledge_many(p_ids, p_tokens) held;
        INSERT INTO {schema}.message (mailbox, visible_at, enqueued_at, generation, body)
        SELECT s.reply_to, v_now, v_now, 0, s.body
        FROM unnest(p_ids, p_reply_to, p_bodies) WITH ORDINALITY AS s (id, reply_to, body, n)
        WHERE s.body IS NOT NULL AND s.id = ANY (v_held) ORDER BY s.n;
        IF cardinality(v_held) IS DISTINCT FROM cardinality(p_ids) THEN
            RETURN QUERY SELECT 0::smallint, NULL::text, s.id, NULL::float8, NULL::integer, NULL::float8, NULL::integer, NULL::bigint,
                NOT EXISTS (SELECT 1 FROM {schema}.message m WHERE m.id = s.id),
                NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::integer, NULL::boolean
            FROM unnest(p_ids) s (id) WHERE s.id <> ALL (coalesce(v_held, '{}'));
        END IF;
    END IF;
    IF v_left > 0 AND NOT v_only THEN
        SELECT array_agg(h.mailbox), array_agg(h.visible_at), array_agg(h.rank), array_agg(h.floor)
        INTO v_names, v_heads, v_order, v_floor
        FROM (
            SELECT c.mailbox, c.rank, m.visible_at, f.floor FROM {schema}.covered(p_cover) c
            LEFT JOIN unnest(p_known, p_floors) AS f (mailbox, floor) ON f.mailbox = c.mailbox
            CROSS JOIN LATERAL (
                SELECT m.visible_at FROM {schema}.message m
                WHERE m.mailbox = c.mailbox AND m.visible_at >= coalesce(to_timestamp(f.floor), '-infinity') AND m.visible_at <= v_now
                ORDER BY m.visible_at, m.id LIMIT 1
            ) m
        ) h;
    END IF;
    WHILE v_left > 0 LOOP
        IF v_only THEN
            v_names := ARRAY[p_cover];
            v_floor := p_floors;
            v_at := 1;
        ELSIF cardinality(v_names) = 1 THEN  -- one of them holds something: nearly always
            v_at := CASE WHEN v_heads[1] IS NOT NULL THEN 1 END;
        ELSE
            SELECT min(h.n) FILTER (WHERE h.place = 1), min(h.head) FILTER (WHERE h.place = 2) INTO v_at, v_next FROM (
                SELECT n::integer, head, rank, row_number() OVER (ORDER BY rank, head, n) AS place, min(rank) OVER () AS lowest
                FROM unnest(v_heads, v_order) WITH ORDINALITY AS u (head, rank, n) WHERE head <= v_now
            ) h WHERE h.place <= 2 AND h.rank = h.lowest;
        END IF;
        EXIT WHEN v_at IS NULL;
        v_found := 0;
        FOR o_id, o_due, o_deliveries, o_enqueued_at, o_exhausted, o_generation, o_failure, o_key, o_reply_to, o_checkpoint, o_body,
            o_forgiven, o_suspect IN
            SELECT * FROM {schema}.lease(v_names[v_at], v_left, p_lease, p_token, p_stage, p_limit, v_floor[v_at], false,
                coalesce(v_next, 'infinity'), v_left = p_max)
        LOOP
            CONTINUE WHEN o_id IS NULL;
            o_kind := 1;
            o_mailbox := v_names[v_at];
            v_found := v_found + 1;
            RETURN NEXT;
        END LOOP;
        -- A suspect one is alone; and others come first if one that is held back, or that somebody else is taking, comes next.
        EXIT WHEN o_suspect OR (v_found = 0 AND v_left < p_max);
        v_left := v_left - v_found;
        EXIT WHEN v_only OR v_left = 0;
        v_heads[v_at] := NULL;
        IF v_found > 0 THEN
            SELECT m.visible_at INTO v_next FROM {schema}.message m
            WHERE m.mailbox = v_names[v_at] AND m.visible_at <= v_now
                  AND m.visible_at >= coalesce(to_timestamp(v_floor[v_at]), '-infinity')
            ORDER BY m.visible_at, m.id LIMIT 1;
            v_heads[v_at] := v_next;
            v_next := NULL;
        END IF;
    END LOOP;
    IF v_left = p_max AND p_look THEN
        o_kind := 2;
        o_id := NULL;
        SELECT date_part('epoch', min(h.visible_at) - v_now) INTO o_due FROM {schema}.covered(p_cover) c
        CROSS JOIN LATERAL (
            SELECT m.visible_at FROM {schema}.message m WHERE m.mailbox = c.mailbox AND m.visible_at > v_now
            ORDER BY m.visible_at LIMIT 1
        ) h;
        RETURN NEXT;
    END IF;
    IF cardinality(p_ids) > 0 THEN
        PERFORM set_config('synchronous_commit', v_durable, true);  -- what was settled is durable, however the claim is
        PERFORM {schema}.ring('m/' || told) FROM (
            SELECT DISTINCT s.reply_to FROM unnest(p_ids, p_reply_to, p_bodies) AS s (id, reply_to, body)
            WHERE s.body IS NOT NULL AND s.id = ANY (v_held) ORDER BY s.reply_to
        ) t (told);
    END IF;
END $$;

-- The deliveries of claims with these tokens that are still held, as `lease` tells them; o_due is the seconds that are left.
CREATE FUNCTION {schema}.held(p_mailboxes text[], p_tokens bigint[])
RETURNS TABLE (o_mailbox text, o_token bigint, o_id bigint, o_due float8, o_deliveries integer, o_enqueued_at float8, o_exhausted integer,
    o_generation bigint, o_failure boolean, o_key text, o_reply_to text, o_checkpoint bytea, o_body bytea, o_forgiven integer,
    o_suspect boolean)
LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    SELECT m.mailbox, m.token, m.id, date_part('epoch', m.visible_at - v_now), m.deliveries, date_part('epoch', m.enqueued_at), NULL::integer,
           m.generation, m.failure, m.key, m.reply_to, m.checkpoint, m.body, m.base, false
    FROM unnest(p_mailboxes) c (mailbox) JOIN {schema}.message m ON m.mailbox = c.mailbox AND m.visible_at > v_now
    WHERE m.token = ANY (p_tokens);
END $$;

-- As `lease`, for processes of the first release, which run on while the functions are made anew and know 12 columns.
CREATE FUNCTION {schema}.claim(p_mailbox text, p_max integer, p_lease float8, p_token bigint, p_stage smallint,
    p_limit integer, p_floor float8, p_look boolean)
RETURNS TABLE (o_id bigint, o_due float8, o_deliveries integer, o_enqueued_at float8, o_exhausted integer, o_generation bigint,
    o_failure boolean, o_key text, o_reply_to text, o_checkpoint bytea, o_body bytea, o_forgiven integer)
LANGUAGE sql AS $$
    SELECT l.o_id, l.o_due, l.o_deliveries, l.o_enqueued_at, l.o_exhausted, l.o_generation, l.o_failure, l.o_key, l.o_reply_to,
           l.o_checkpoint, l.o_body, l.o_forgiven
    FROM {schema}.lease(p_mailbox, p_max, p_lease, p_token, p_stage, p_limit, p_floor, p_look) l
$$;

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

-- Hold several for longer, as `extend`; the ids of those that were held.
CREATE FUNCTION {schema}.extend_many(p_ids bigint[], p_tokens bigint[], p_seconds float8) RETURNS SETOF bigint LANGUAGE sql AS $$
    SELECT t.id FROM unnest(p_ids, p_tokens) AS t (id, token)
    WHERE {schema}.extend(t.id, t.token, p_seconds, NULL)
$$;

CREATE FUNCTION {schema}.exhausted(p_times integer) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT 'delivered ' || p_times || CASE WHEN p_times = 1 THEN ' time' ELSE ' times' END || ' without being settled'
$$;

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
