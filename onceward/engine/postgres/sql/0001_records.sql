-- The table of records. Partitions and sort keys are compared as bytes.

CREATE TABLE @schema@.record (
    partition text COLLATE "C" NOT NULL,
    sort text COLLATE "C" NOT NULL,
    value text NOT NULL,            -- JSON
    version bigint NOT NULL,        -- of the commit that wrote it
    expires_at_ms bigint,           -- absent from then on; the sweeper removes it later
    PRIMARY KEY (partition, sort)
) WITH (
    -- Records are updated often. Free space on pages permits updates without new index entries, and
    -- autovacuum must run before a fifth of a large table consists of dead rows.
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05
);

CREATE INDEX record_expiry ON @schema@.record (expires_at_ms) WHERE expires_at_ms IS NOT NULL;

-- Each batch of commits takes one value and assigns the following numbers to its members, so
-- versions are never reused, even after deletes and restarts.
CREATE SEQUENCE @schema@.batch INCREMENT BY 1024;
