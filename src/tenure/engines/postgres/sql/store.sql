-- Bytes under keys.

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

-- Write many values, and remove those that are NULL; a key that a higher fence has written stays as it is. In the order of the keys, so that
-- two writers do not lock each other out.
CREATE FUNCTION {schema}.put_many(p_name text, p_keys text[], p_values bytea[], p_generation bigint, p_delivery bigint, p_ttl float8)
RETURNS void LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    INSERT INTO {schema}.store AS s (name, key, fence_generation, fence_delivery, expires_at, value)
    SELECT p_name, u.key, p_generation, p_delivery,
           v_now + CASE WHEN u.value IS NULL THEN {memory} ELSE make_interval(secs => p_ttl) END, u.value
    FROM unnest(p_keys, p_values) AS u (key, value) ORDER BY u.key
    ON CONFLICT (name, key) DO UPDATE
    SET value = excluded.value, expires_at = excluded.expires_at,
        fence_generation = excluded.fence_generation, fence_delivery = excluded.fence_delivery
    WHERE s.fence_generation IS NULL
       OR (s.fence_generation, s.fence_delivery) <= (excluded.fence_generation, excluded.fence_delivery);
END $$;

CREATE FUNCTION {schema}.get_many(p_name text, p_keys text[]) RETURNS TABLE (o_key text, o_value bytea) LANGUAGE plpgsql {planner} AS $$
BEGIN
    RETURN QUERY SELECT s.key, s.value FROM {schema}.store s WHERE s.name = p_name AND s.key = ANY (p_keys)
    AND s.value IS NOT NULL AND (s.expires_at IS NULL OR s.expires_at > clock_timestamp());
END $$;

-- Keys and values of one page, upwards or downwards, up to about so many bytes. One row is read at a time, so the rest of a page costs nothing.
CREATE FUNCTION {schema}.scan(p_name text, p_from text, p_after text, p_below text, p_limit integer, p_bytes bigint, p_down boolean)
RETURNS TABLE (o_key text, o_value bytea) LANGUAGE plpgsql {planner} AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_size bigint := 0;
    v_rows refcursor;
BEGIN
    IF p_down THEN
        OPEN v_rows FOR SELECT s.key, s.value FROM {schema}.store s
        WHERE s.name = p_name AND s.key >= p_from AND (p_after IS NULL OR s.key < p_after) AND (p_below IS NULL OR s.key < p_below)
          AND s.value IS NOT NULL AND (s.expires_at IS NULL OR s.expires_at > v_now)
        ORDER BY s.key DESC LIMIT p_limit;
    ELSE
        OPEN v_rows FOR SELECT s.key, s.value FROM {schema}.store s
        WHERE s.name = p_name AND s.key >= p_from AND (p_after IS NULL OR s.key > p_after) AND (p_below IS NULL OR s.key < p_below)
          AND s.value IS NOT NULL AND (s.expires_at IS NULL OR s.expires_at > v_now)
        ORDER BY s.key LIMIT p_limit;
    END IF;
    LOOP
        FETCH v_rows INTO o_key, o_value;
        EXIT WHEN NOT FOUND;
        RETURN NEXT;
        v_size := v_size + octet_length(o_value);
        EXIT WHEN v_size >= p_bytes;
    END LOOP;
END $$;
