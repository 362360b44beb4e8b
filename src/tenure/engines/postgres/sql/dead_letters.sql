-- What became of messages that were given up.

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
