-- Where each lane stands, so that an answer that was lost can be asked for.
--
-- A lane is one connection that commits. It numbers its batches, and sends one at a time. What
-- became of a batch is noted in its own transaction, in the one row of its lane. When an answer is
-- lost, another connection asks for it, and in doing so gives the batch up: should it still be on
-- its way, it is refused when it arrives, however late that is. So is one whose lane is gone.

CREATE TABLE @schema@.lane (
    id bigint PRIMARY KEY,
    number bigint NOT NULL,     -- of the last batch that was applied, or given up
    base bigint,                -- its answer, as below; null if it was given up
    failed text,
    used_at timestamptz NOT NULL
) WITH (fillfactor = 25);

-- What this transaction commits is on disk before anyone is told, whatever the server, the user or
-- a pooler has set at that moment.
CREATE FUNCTION @schema@.be_durable() RETURNS text
LANGUAGE sql
AS $$
    SELECT CASE current_setting('synchronous_commit')
        WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END;
$$;

-- A new lane. Those that have long not been used go: their nodes are gone, or open another.
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
    OUT base bigint,            -- member m has got the version base + m
    OUT failed text             -- the writes whose expectation did not hold: numbers and commas
)
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM @schema@.be_durable();
    -- Who asks for the outcome meanwhile waits here for it. A lane that does not stand at the batch
    -- before this one has lost some: the server is another one, behind the same pooler.
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

-- What became of a batch, and it will become nothing else. Asked twice, it says the same.
CREATE FUNCTION @schema@.settle_batch(
    lane_id bigint,
    batch_number bigint,
    OUT known boolean,          -- false if the lane is gone
    OUT base bigint,            -- as above; null if it was not applied, and never will be
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
    known := FOUND AND last < 9223372036854775807;  -- which stands for a lane that is gone
    IF last < batch_number THEN
        base := NULL;
        UPDATE @schema@.lane AS l SET number = batch_number, base = NULL, failed = NULL
        WHERE l.id = lane_id;
    END IF;
END
$$;
