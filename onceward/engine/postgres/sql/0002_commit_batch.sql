-- Many commits in one call: each is applied whole or not at all, whatever becomes of the others.
--
-- The writes of all members come sorted by key, those of one key in the order of arrival; only
-- `turns` has them in the order of the members. One call is one transaction of its own, at READ
-- COMMITTED:
--
-- 1. Claim: insert a row for every key that some write does not expect to be there at a certain
--    version. Where there is a row already, this does nothing. So no one else can bring such a
--    key into being before this transaction has ended.
-- 2. Lock the rows that were there already.
-- 3. Judge the members in their order, each seeing what the ones before it have done.
-- 4. Write what has changed, and remove the claims of members that lost.
--
-- No deadlock: claims are made in the order of keys, and so are locks. Who waits for a lock
-- waits for one who has made all his claims, and who writes waits for no one.
--
-- Who expects a version and finds none needs no claim: that version is gone for ever.

CREATE FUNCTION @schema@.commit_batch(
    deadline double precision,   -- seconds since the epoch: later than that, refuse to begin
    claimed int,                 -- how many keys are claimed
    partitions text[],           -- of each write
    sorts text[],
    contents text[],             -- what a put writes; empty for others
    expiries bigint[],           -- the largest number: never
    expects bigint[],            -- a version, 0 for absent, -1 for any
    kinds int[],                 -- 0 check, 1 put, 2 delete
    members int[],               -- to which member it belongs, counted from 1
    firsts int[],                -- the first write of the same key
    roles int[],                 -- sum of: 1 first of its key, 2 is the claim, 4 its key is claimed
    turns int[],                 -- all writes in the order of the members
    ends int[],                  -- where in `turns` each member ends
    times bigint[],              -- what time it is for each member
    OUT base bigint,             -- member m has got the version base + m
    OUT failed int[]             -- the writes whose expectation did not hold
)
LANGUAGE plpgsql
AS $$
DECLARE
    never CONSTANT bigint := 9223372036854775807;
    total CONSTANT int := cardinality(members);
    -- What stands under a key, kept at the first write of that key.
    places tid[] := array_fill(NULL::tid, ARRAY[total]);
    versions bigint[] := array_fill(0::bigint, ARRAY[total]);
    expirations bigint[] := array_fill(never, ARRAY[total]);
    deciding int[] := array_fill(0, ARRAY[total]);  -- the last write of a winner
    -- What to write where, kept at the write itself; and what to remove.
    targets tid[] := array_fill(NULL::tid, ARRAY[total]);
    removals tid[] := '{}';
    inserted int;
    found int := 0;      -- rows of claimed keys that were there already
    kept int := 0;       -- claims that are what their winner wrote
    updates int := 0;
    written int;
    past int := 0;
    position int;
    fine boolean;
    time_ms bigint;
    version_now bigint;
    expected bigint;
    w int;
    f int;
    was int;
    place tid;
    row record;
BEGIN
    IF clock_timestamp() > to_timestamp(deadline) THEN
        RAISE EXCEPTION 'this batch of commits came too late' USING ERRCODE = 'OW001';
    END IF;
    base := nextval('@schema@.batch');
    failed := '{}';

    INSERT INTO @schema@.record
    SELECT u.p, u.s, coalesce(u.content, ''), base + u.member, nullif(u.expiry, never)
    FROM unnest(partitions, sorts, contents, members, expiries, roles)
        AS u(p, s, content, member, expiry, role)
    WHERE u.role & 2 <> 0
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS inserted = ROW_COUNT;

    FOR row IN
        SELECT u.w, u.role, r.ctid, r.version, r.expires_at_ms
        FROM unnest(partitions, sorts, roles) WITH ORDINALITY AS u(p, s, role, w)
        JOIN @schema@.record AS r ON r.partition = u.p AND r.sort = u.s
        WHERE u.role & 1 <> 0
            AND (r.version < base OR r.version > base + 1023)  -- not inserted above
        ORDER BY u.w
        FOR UPDATE OF r
    LOOP
        places[row.w] := row.ctid;
        versions[row.w] := row.version;
        IF row.expires_at_ms IS NOT NULL THEN
            expirations[row.w] := row.expires_at_ms;
        END IF;
        IF row.role & 4 <> 0 THEN
            found := found + 1;
        END IF;
    END LOOP;
    IF inserted + found <> claimed THEN
        RAISE EXCEPTION 'a record went away between claim and lock' USING ERRCODE = '40001';
    END IF;

    FOR m IN 1 .. cardinality(ends) LOOP
        fine := true;
        time_ms := times[m];
        position := past + 1;
        past := ends[m];
        FOR t IN position .. past LOOP
            w := turns[t];
            expected := expects[w];
            IF expected <> -1 THEN
                f := firsts[w];
                version_now := versions[f];
                IF expirations[f] <= time_ms THEN
                    version_now := 0;
                END IF;
                IF version_now <> expected THEN
                    fine := false;
                    failed := failed || w;
                END IF;
            END IF;
        END LOOP;
        CONTINUE WHEN NOT fine;
        FOR t IN position .. past LOOP
            w := turns[t];
            CONTINUE WHEN kinds[w] = 0;
            f := firsts[w];
            place := places[f];
            was := deciding[f];
            IF was <> 0 THEN
                -- Another member of this batch has written here: take that back.
                IF place IS NULL THEN
                    IF roles[was] & 2 <> 0 AND kinds[was] = 1 THEN
                        kept := kept - 1;
                    END IF;
                ELSIF kinds[was] = 1 THEN
                    targets[was] := NULL;
                    updates := updates - 1;
                ELSE
                    removals := array_remove(removals, place);
                END IF;
            END IF;
            deciding[f] := w;
            IF kinds[w] = 1 THEN
                versions[f] := base + m;
                expirations[f] := expiries[w];
                IF place IS NOT NULL THEN
                    targets[w] := place;
                    updates := updates + 1;
                ELSIF roles[w] & 2 <> 0 THEN
                    kept := kept + 1;
                END IF;
            ELSE
                versions[f] := 0;
                expirations[f] := never;
                IF place IS NOT NULL THEN
                    removals := removals || place;
                END IF;
            END IF;
        END LOOP;
    END LOOP;

    IF kept <> inserted THEN
        -- Some claims are not what is to stay: a loser's, one for a mere check or delete, or
        -- one that a later member has overwritten.
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
                updates := updates + 1;
            END IF;
        END LOOP;
    END IF;

    IF updates > 0 THEN
        UPDATE @schema@.record AS r
        SET value = u.content, version = base + u.member, expires_at_ms = nullif(u.expiry, never)
        FROM unnest(contents, members, expiries, targets) AS u(content, member, expiry, target)
        WHERE u.target IS NOT NULL AND r.ctid = u.target;
        GET DIAGNOSTICS written = ROW_COUNT;
        IF written <> updates THEN
            RAISE EXCEPTION '% of % locked records were written', written, updates;
        END IF;
    END IF;
    IF cardinality(removals) > 0 THEN
        DELETE FROM @schema@.record AS r WHERE r.ctid = ANY (removals);
        GET DIAGNOSTICS written = ROW_COUNT;
        IF written <> cardinality(removals) THEN
            RAISE EXCEPTION '% of % locked records were removed', written, cardinality(removals);
        END IF;
    END IF;
END
$$;
