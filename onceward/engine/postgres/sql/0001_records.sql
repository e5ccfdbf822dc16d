-- Where records live. Sort keys, and partitions beside them, are compared as bytes.

CREATE TABLE @schema@.record (
    partition text COLLATE "C" NOT NULL,
    sort text COLLATE "C" NOT NULL,
    value text NOT NULL,            -- JSON, as it was given
    version bigint NOT NULL,        -- of the commit that wrote it
    expires_at_ms bigint,           -- absent from then on; the sweeper removes it later
    PRIMARY KEY (partition, sort)
) WITH (
    -- Records are replaced all the time: room on the page spares the indexes a new entry, and
    -- what is dead has to go before a fifth of a large table is dead.
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05
);

CREATE INDEX record_expiry ON @schema@.record (expires_at_ms) WHERE expires_at_ms IS NOT NULL;

-- Each batch of commits takes one value, and gives its members the numbers behind it. So no
-- version is ever given twice, whatever is deleted or restarted.
CREATE SEQUENCE @schema@.batch INCREMENT BY 1024;
