-- The position of each lane, by which the result of a lost response is recovered.
--
-- A lane is one connection that commits. It numbers its batches and sends one at a time. The result
-- of a batch is stored in its transaction, in the row of its lane. When a response is lost, another
-- connection queries the result and thereby cancels the batch: if it arrives later, it is rejected.
-- A batch whose lane was removed is rejected as well.

CREATE TABLE @schema@.lane (
    id bigint PRIMARY KEY,
    number bigint NOT NULL,     -- of the last batch that was applied or cancelled
    base bigint,                -- its result, as below; null if it was cancelled
    failed text,
    used_at timestamptz NOT NULL
) WITH (fillfactor = 25);

-- Commits are on disk before the response, independently of the settings of the server, the user or
-- a pooler.
CREATE FUNCTION @schema@.be_durable() RETURNS text
LANGUAGE sql
AS $$
    SELECT CASE current_setting('synchronous_commit')
        WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END;
$$;

-- Open a new lane, and remove lanes that were unused for long: their nodes are gone or open
-- another.
CREATE FUNCTION @schema@.open_lane() RETURNS bigint
LANGUAGE sql
AS $$
    DELETE FROM @schema@.lane WHERE id IN (
        SELECT id FROM @schema@.lane WHERE used_at < now() - interval '1 day'
        FOR UPDATE SKIP LOCKED
    );
    INSERT INTO @schema@.lane
    VALUES (nextval('@schema@.batch'), 0, NULL, NULL, now()) RETURNING id;
$$;

CREATE FUNCTION @schema@.commit_lane(
    lane_id bigint,
    batch_number bigint,
    -- As for commit_batch:
    claimed int,
    tangled boolean,
    partitions text[],
    sorts text[],
    contents text[],
    expiries bigint[],
    expects bigint[],
    kinds int[],
    members int[],
    roles int[],
    times bigint[],
    firsts int[],
    turns int[],
    ends int[],
    OUT base bigint,            -- the version of member m is base + m
    OUT failed text             -- the writes whose expectation failed: numbers and commas
)
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM @schema@.be_durable();
    -- A concurrent query of the outcome waits here. A lane that is not at the preceding batch has
    -- lost some: a pooler has switched to another server.
    PERFORM FROM @schema@.lane AS l WHERE l.id = lane_id AND l.number = batch_number - 1 FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'this batch of commits was given up' USING ERRCODE = 'OW001';
    END IF;
    SELECT b.base, array_to_string(b.failed, ',') INTO base, failed
    FROM @schema@.commit_batch(
        'infinity', claimed, tangled, partitions, sorts, contents, expiries, expects, kinds,
        members, roles, times, firsts, turns, ends
    ) AS b;
    UPDATE @schema@.lane AS l
    SET number = batch_number, base = commit_lane.base, failed = commit_lane.failed,
        used_at = now()
    WHERE l.id = lane_id;
END
$$;

-- The final result of a batch; cancels it if it was not applied. Idempotent.
CREATE FUNCTION @schema@.settle_batch(
    lane_id bigint,
    batch_number bigint,
    OUT known boolean,          -- false if the lane was removed
    OUT base bigint,            -- as above; null if it will never be applied
    OUT failed text
)
LANGUAGE plpgsql
AS $$
DECLARE
    last bigint;
BEGIN
    PERFORM @schema@.be_durable();
    SELECT l.number, l.base, l.failed INTO last, base, failed
    FROM @schema@.lane AS l WHERE l.id = lane_id FOR UPDATE;
    known := FOUND AND last < 9223372036854775807;  -- the number of a lost lane
    IF last < batch_number THEN
        base := NULL;
        UPDATE @schema@.lane AS l SET number = batch_number, base = NULL, failed = NULL
        WHERE l.id = lane_id;
    END IF;
END
$$;
