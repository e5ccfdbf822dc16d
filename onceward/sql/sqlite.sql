-- Messages that were enqueued in transactions of the application. A node accepts and deletes them.
CREATE TABLE IF NOT EXISTS onceward_outbox (
    id INTEGER PRIMARY KEY,
    message TEXT NOT NULL DEFAULT (lower(hex(randomblob(16)))),  -- the idempotency key, unless `key` is set
    queue TEXT NOT NULL,
    body TEXT NOT NULL DEFAULT 'null',
    key TEXT,
    order_key TEXT,
    options TEXT NOT NULL DEFAULT '{}',                          -- delay_s, due_ms, priority, tags and others
    created_ms INTEGER NOT NULL
        DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
);

-- Messages that cannot be accepted. To enqueue them again, move them back.
CREATE TABLE IF NOT EXISTS onceward_outbox_failed (
    message TEXT NOT NULL PRIMARY KEY,
    queue TEXT NOT NULL,
    body TEXT NOT NULL,
    key TEXT,
    order_key TEXT,
    options TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    reason TEXT NOT NULL,
    failed_ms INTEGER NOT NULL
        DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
);

-- Steps of jobs. `run` is the number of the last lease whose step began: earlier ones are refused.
CREATE TABLE IF NOT EXISTS onceward_step_fence (
    job TEXT NOT NULL PRIMARY KEY,
    run INTEGER NOT NULL,
    kept_until_ms INTEGER NOT NULL,
    ended INTEGER NOT NULL DEFAULT 0
);

CREATE INDEX IF NOT EXISTS onceward_step_fence_kept_until ON onceward_step_fence (kept_until_ms);

CREATE TABLE IF NOT EXISTS onceward_step (
    job TEXT NOT NULL,
    step TEXT NOT NULL,
    result TEXT NOT NULL,  -- JSON
    done_ms INTEGER NOT NULL
        DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    PRIMARY KEY (job, step)
);
