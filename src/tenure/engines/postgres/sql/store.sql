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
