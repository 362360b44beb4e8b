-- The finished steps of a key's work. The table came after the first release: it is made with the functions, and the janitor of any
-- release deletes the steps of a key with the key.
CREATE TABLE IF NOT EXISTS {schema}.step (
    mailbox text COLLATE "C" NOT NULL,
    key     text COLLATE "C" NOT NULL,
    number  integer NOT NULL,
    record  bytea NOT NULL,
    PRIMARY KEY (mailbox, key, number),
    FOREIGN KEY (mailbox, key) REFERENCES {schema}.key ON DELETE CASCADE
);

-- Append to the steps of a key while this delivery of its message is held, and hold it for longer. Locks the key first, then its
-- message: as everywhere.
CREATE FUNCTION {schema}.append_step(p_id bigint, p_token bigint, p_mailbox text, p_key text, p_seconds float8, p_record bytea)
RETURNS boolean LANGUAGE plpgsql {planner} AS $$
BEGIN
    PERFORM 1 FROM {schema}.key k WHERE k.mailbox = p_mailbox AND k.key = p_key FOR KEY SHARE;
    IF NOT {schema}.extend(p_id, p_token, p_seconds, NULL) THEN
        RETURN false;
    END IF;
    INSERT INTO {schema}.step (mailbox, key, number, record)
    SELECT p_mailbox, p_key, coalesce(max(s.number), 0) + 1, p_record
    FROM {schema}.step s WHERE s.mailbox = p_mailbox AND s.key = p_key;
    RETURN true;
END $$;

-- The steps of a key, in order; null when this delivery of its message is not held.
CREATE FUNCTION {schema}.steps(p_id bigint, p_token bigint, p_mailbox text, p_key text) RETURNS bytea[] LANGUAGE plpgsql {planner} AS $$
BEGIN
    PERFORM 1 FROM {schema}.message m WHERE m.id = p_id AND m.token = p_token AND m.visible_at > clock_timestamp();
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    RETURN ARRAY(SELECT s.record FROM {schema}.step s WHERE s.mailbox = p_mailbox AND s.key = p_key ORDER BY s.number);
END $$;
