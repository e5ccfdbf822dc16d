-- The incarnation of the database. A failover, a restore or a clone starts a new one.
--
-- Acknowledged commits may be missing then, and the sequence of versions may be behind the versions
-- of lost records. Every connection therefore calls `find_incarnation` before it is used. The first
-- one that finds another server than the recorded one advances the sequence, so that versions are
-- never reused, and records the new incarnation for all nodes.

CREATE TABLE @schema@.incarnation (
    number bigint PRIMARY KEY,
    id text NOT NULL,               -- random: two standbys promoted from one primary differ
    system text,                    -- of the server, as below
    timeline text,
    place text NOT NULL,
    started text,
    base bigint NOT NULL,           -- less than all its versions
    began_at timestamptz NOT NULL,
    lost bigint NOT NULL DEFAULT 0, -- the number of missing acknowledged batches
    accepted_at timestamptz         -- when an operator accepted that loss
);

-- The identity of a server, or of a copy on one server. Parts without read permission are null.
CREATE FUNCTION @schema@.server_identity(
    OUT system text,
    OUT timeline text,              -- a promotion or a point-in-time recovery starts a new one
    OUT place text,                 -- the database and the table, which differ in a restored dump
    OUT started text                -- the server's start, if one of the first two is null
)
LANGUAGE plpgsql
AS $$
BEGIN
    BEGIN
        SELECT c.system_identifier INTO system FROM pg_control_system() AS c;
    EXCEPTION WHEN OTHERS THEN
        system := NULL;
    END;
    BEGIN
        -- Not pg_control_checkpoint(), which lags behind a promotion.
        timeline := left(pg_walfile_name(pg_current_wal_lsn()), 8);
    EXCEPTION WHEN OTHERS THEN
        timeline := NULL;
    END;
    SELECT d.oid || '/' || '@schema@.record'::regclass::oid INTO place
    FROM pg_database AS d WHERE d.datname = current_database();
    IF system IS NULL OR timeline IS NULL THEN
        started := extract(epoch FROM pg_postmaster_start_time())::text;
    END IF;
END
$$;

-- The current incarnation. Runs with the rights of its owner, so that others need no right to set
-- the sequence.
CREATE FUNCTION @schema@.find_incarnation(
    known_id text,                  -- the incarnation of the caller, or empty
    known_number bigint,
    lanes bigint[],                 -- the lanes of the caller
    numbers bigint[],               -- the last acknowledged number of each
    OUT number bigint,
    OUT id text,
    OUT since_ms bigint,            -- when it started; 0 for the first one
    OUT server text,                -- for the log
    OUT began boolean,              -- whether this call has started it
    OUT lost bigint,                -- missing batches of commits whose loss was not accepted
    OUT lost_at text                -- when the last loss was detected
)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    here record;
    last record;
    short bigint;                   -- lanes that are missing or behind, and their missing batches
    missing bigint;
    base bigint := 0;
BEGIN
    began := false;
    SELECT * INTO here FROM @schema@.server_identity();
    FOR look IN 1 .. 2 LOOP
        IF look = 2 THEN
            PERFORM @schema@.be_durable();
            LOCK TABLE @schema@.incarnation IN EXCLUSIVE MODE;
        END IF;
        -- Null parts are not compared: users with other rights must not look like other servers.
        SELECT i.number, i.id, i.began_at, i.system <> here.system IS TRUE
            OR i.timeline <> here.timeline IS TRUE
            OR i.started <> here.started IS TRUE
            OR i.place <> here.place AS changed
        INTO last FROM @schema@.incarnation AS i ORDER BY i.number DESC LIMIT 1;
        SELECT count(*), coalesce(sum(a.number - coalesce(l.number, 0)), 0) INTO short, missing
        FROM unnest(lanes, numbers) AS a(id, number)
        LEFT JOIN @schema@.lane AS l ON l.id = a.id
        WHERE l.id IS NULL OR l.number < a.number;
        EXIT WHEN last.id IS NOT NULL AND NOT last.changed AND short = 0;
        CONTINUE WHEN look = 1;

        -- Lanes that are behind in the same incarnation: commits were lost although the server
        -- seems to be the same.
        IF last.id IS NULL OR last.changed OR last.id = known_id THEN
            IF last.id IS NOT NULL THEN
                -- Random, so that two copies that lost the same commits do not assign the same
                -- versions.
                SELECT greatest(nextval('@schema@.batch'), max(l.id), max(l.base))
                    + ((1 + floor(random() * 64))::bigint << 40)
                INTO base FROM @schema@.lane AS l;
                PERFORM setval('@schema@.batch', base);
            END IF;
            last.number := greatest(coalesce(last.number, 0), known_number) + 1;
            last.id := md5(random()::text || clock_timestamp() || pg_backend_pid());
            last.began_at := clock_timestamp();
            INSERT INTO @schema@.incarnation VALUES (
                last.number, last.id, here.system, here.timeline, here.place, here.started, base,
                last.began_at
            );
            began := true;
        END IF;
        IF missing > 0 THEN
            UPDATE @schema@.incarnation AS i SET lost = i.lost + missing, accepted_at = NULL
            WHERE i.number = last.number;
        END IF;
        -- So that the loss is counted once. The largest number marks a lane as lost.
        INSERT INTO @schema@.lane
        SELECT a.id, 9223372036854775807, NULL, NULL, clock_timestamp()
        FROM unnest(lanes, numbers) AS a(id, number)
        WHERE NOT EXISTS (SELECT FROM @schema@.lane AS l WHERE l.id = a.id);
        UPDATE @schema@.lane AS l SET number = a.number, base = NULL, failed = NULL
        FROM unnest(lanes, numbers) AS a(id, number)
        WHERE l.id = a.id AND l.number < a.number;
    END LOOP;
    number := last.number;
    id := last.id;
    since_ms := CASE WHEN number = 1 THEN 0 ELSE extract(epoch FROM last.began_at) * 1000 END;
    server := concat_ws(
        ', ', 'system ' || here.system, 'timeline ' || here.timeline, 'place ' || here.place,
        'started ' || here.started
    );
    SELECT coalesce(sum(i.lost), 0),
        to_char(max(i.began_at) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"')
    INTO lost, lost_at
    FROM @schema@.incarnation AS i WHERE i.lost > 0 AND i.accepted_at IS NULL;
END
$$;

-- For operators after a loss of commits: ends the alarm on all nodes.
CREATE FUNCTION @schema@.accept_lost_commits() RETURNS bigint
LANGUAGE sql
AS $$
    WITH accepted AS (
        UPDATE @schema@.incarnation SET accepted_at = now()
        WHERE lost > 0 AND accepted_at IS NULL RETURNING lost
    ) SELECT coalesce(sum(lost), 0)::bigint FROM accepted;
$$;
