-- Many commits in one call. Each is applied completely or not at all, independently of the others.
--
-- The writes of all members are sorted by key, those of one key in the order of arrival. Only
-- `turns` has them in the order of the members. One call is one transaction at READ COMMITTED:
--
-- 1. Claim: insert a row for every key with a write that does not expect a certain version. An
--    existing row is left unchanged. Until this transaction ends, no other can create such a key.
-- 2. Lock the rows that existed before.
-- 3. Evaluate the members in their order. Each one sees the writes of those before it.
-- 4. Write the changes, and remove the claims of members that failed.
--
-- There are no deadlocks: claims and locks are acquired in the order of keys. A transaction that
-- waits for a lock waits for one that has made all its claims, and one that writes never waits.
--
-- A write that expects a version and finds no row needs no claim, since versions are never reused.

CREATE FUNCTION @schema@.commit_batch(
    deadline double precision,   -- seconds since the epoch, after which the call is rejected
    claimed int,                 -- the number of claimed keys
    tangled boolean,             -- whether a key occurs in more than one member
    partitions text[],           -- of each write
    sorts text[],
    contents text[],             -- the value of a put; otherwise empty
    expiries bigint[],           -- the largest number means never
    expects bigint[],            -- a version, 0 for absent, -1 for any
    kinds int[],                 -- 0 check, 1 put, 2 delete
    members int[],               -- the member of the write, counted from 1
    roles int[],                 -- sum of: 1 first of its key, 2 is the claim, 4 its key is claimed
    times bigint[],              -- the time of each member
    -- Only if tangled:
    firsts int[],                -- the first write of the same key
    turns int[],                 -- all writes in the order of the members
    ends int[],                  -- where in `turns` each member ends
    OUT base bigint,             -- the version of member m is base + m
    OUT failed int[]             -- the writes whose expectation failed
)
LANGUAGE plpgsql
AS $$
DECLARE
    never CONSTANT bigint := 9223372036854775807;
    total CONSTANT int := cardinality(members);
    -- The row of the key of each write before the call: its location, version and expiry.
    places tid[];
    versions bigint[];
    expirations bigint[];
    deciding int[];      -- by the first write of a key: the write that decides; 0 for none
    targets tid[];       -- by write: the target row of a put
    removals tid[];
    inserted int;
    found int;           -- rows of claimed keys that existed before
    kept int;            -- claims that contain the final value
    puts int;            -- rows to write, and to remove
    deletes int;
    written int;
    losers int[] := '{}';
    past int := 0;
    start int;
    fine boolean;
    time_ms bigint;
    w int;
    f int;
    row record;
BEGIN
    IF clock_timestamp() > to_timestamp(deadline) THEN
        RAISE EXCEPTION 'this batch of commits came too late' USING ERRCODE = 'OW001';
    END IF;
    base := nextval('@schema@.batch');

    -- 1. Claim, in the order of keys.
    INSERT INTO @schema@.record
    SELECT u.p, u.s, coalesce(u.content, ''), base + u.member, nullif(u.expiry, never)
    FROM unnest(partitions, sorts, contents, members, expiries, roles)
        AS u(p, s, content, member, expiry, role)
    WHERE u.role & 2 <> 0
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS inserted = ROW_COUNT;

    -- 2. Lock, in the order of keys. Rows inserted above were absent; if all claims were inserted,
    -- these keys need no lookup. The expectations are compared at the same time, which is the whole
    -- evaluation unless members depend on each other.
    SELECT array_agg(o.ctid), array_agg(o.version), array_agg(o.expiry),
        count(o.ctid) FILTER (WHERE o.role & 4 <> 0),
        count(*) FILTER (WHERE o.ctid IS NULL AND o.role & 2 <> 0 AND o.kind = 1),
        count(o.ctid) FILTER (WHERE o.kind = 1),
        count(o.ctid) FILTER (WHERE o.kind = 2),
        array_agg(o.w) FILTER (WHERE o.expect <> -1 AND o.expect <>
            CASE WHEN o.expiry <= times[o.member] THEN 0 ELSE o.version END)
    INTO places, versions, expirations, found, kept, puts, deletes, failed
    FROM (
        SELECT u.w, u.role, u.kind, u.expect, u.member, r.ctid,
            coalesce(r.version, 0) AS version, coalesce(r.expires_at_ms, never) AS expiry
        FROM unnest(partitions, sorts, roles, kinds, expects, members) WITH ORDINALITY
            AS u(p, s, role, kind, expect, member, w)
        LEFT JOIN LATERAL (
            SELECT t.ctid, t.version, t.expires_at_ms
            FROM @schema@.record AS t
            WHERE (inserted < claimed OR u.role & 4 = 0)
                AND t.partition = u.p AND t.sort = u.s
                AND (t.version < base OR t.version > base + 1023)
            FOR UPDATE
        ) AS r ON true
        ORDER BY u.w
    ) AS o;
    IF inserted + found <> claimed THEN
        RAISE EXCEPTION 'a record went away between claim and lock' USING ERRCODE = '40001';
    END IF;

    -- 3. Evaluate.
    IF tangled THEN
        deciding := array_fill(0, ARRAY[total]);
        failed := '{}';
        FOR m IN 1 .. cardinality(ends) LOOP
            fine := true;
            time_ms := times[m];
            start := past + 1;
            past := ends[m];
            FOR t IN start .. past LOOP
                w := turns[t];
                f := firsts[w];
                IF expects[w] <> -1 AND expects[w] <>
                    (CASE WHEN expirations[f] <= time_ms THEN 0 ELSE versions[f] END)
                THEN
                    fine := false;
                    failed := failed || w;
                END IF;
            END LOOP;
            CONTINUE WHEN NOT fine;
            FOR t IN start .. past LOOP
                w := turns[t];
                f := firsts[w];
                IF kinds[w] = 1 THEN
                    versions[f] := base + m;
                    expirations[f] := expiries[w];
                    deciding[f] := w;
                ELSIF kinds[w] = 2 THEN
                    versions[f] := 0;
                    expirations[f] := never;
                    deciding[f] := w;
                END IF;
            END LOOP;
        END LOOP;
    ELSIF failed IS NOT NULL OR kept <> inserted THEN
        IF failed IS NOT NULL THEN
            losers := ARRAY(SELECT DISTINCT members[u.w] FROM unnest(failed) AS u(w));
        END IF;
        deciding := ARRAY(
            SELECT CASE WHEN u.kind = 0 OR u.member = ANY (losers) THEN 0 ELSE u.w END
            FROM unnest(kinds, members) WITH ORDINALITY AS u(kind, member, w) ORDER BY u.w
        );
    END IF;

    -- 4. Write. If all members succeeded and every claim is a put, each row is written in place.
    IF deciding IS NULL THEN
        targets := places;
        IF deletes > 0 THEN
            removals := ARRAY(
                SELECT u.place FROM unnest(places, kinds) AS u(place, kind)
                WHERE u.kind = 2 AND u.place IS NOT NULL
            );
        END IF;
    ELSE
        targets := array_fill(NULL::tid, ARRAY[total]);
        removals := '{}';
        puts := 0;
        FOR f IN 1 .. total LOOP
            w := deciding[f];
            IF w <> 0 AND places[f] IS NOT NULL THEN
                IF kinds[w] = 1 THEN
                    targets[w] := places[f];
                    puts := puts + 1;
                ELSE
                    removals := removals || places[f];
                END IF;
            END IF;
        END LOOP;
        -- Claims to replace or remove: of a failed member, of a check or delete, or overwritten by
        -- a later member.
        FOR row IN
            SELECT u.w, r.ctid
            FROM unnest(partitions, sorts, roles) WITH ORDINALITY AS u(p, s, role, w)
            JOIN @schema@.record AS r ON r.partition = u.p AND r.sort = u.s
            WHERE u.role & 1 <> 0 AND r.version BETWEEN base AND base + 1023
        LOOP
            w := deciding[row.w];
            IF w = 0 OR kinds[w] = 2 THEN
                removals := removals || row.ctid;
            ELSIF roles[w] & 2 = 0 THEN
                targets[w] := row.ctid;
                puts := puts + 1;
            END IF;
        END LOOP;
        deletes := cardinality(removals);
    END IF;
    IF puts > 0 THEN
        UPDATE @schema@.record AS r
        SET value = u.content, version = base + u.member, expires_at_ms = nullif(u.expiry, never)
        FROM unnest(contents, members, expiries, kinds, targets)
            AS u(content, member, expiry, kind, target)
        WHERE u.kind = 1 AND u.target IS NOT NULL AND r.ctid = u.target;
        GET DIAGNOSTICS written = ROW_COUNT;
        IF written <> puts THEN
            RAISE EXCEPTION '% of % locked records were written', written, puts;
        END IF;
    END IF;
    IF deletes > 0 THEN
        DELETE FROM @schema@.record AS r WHERE r.ctid = ANY (removals);
        GET DIAGNOSTICS written = ROW_COUNT;
        IF written <> deletes THEN
            RAISE EXCEPTION '% of % locked records were removed', written, deletes;
        END IF;
    END IF;
    failed := coalesce(failed, '{}');
END
$$;
