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
