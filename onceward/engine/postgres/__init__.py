"""The PostgreSQL engine: one table, shared by any number of nodes.

A node collects the commits that arrive while others are in progress. The server validates and
applies them in one call, each one independently: one round trip and one sync for many commits. Gets
are batched in the same way. Change hints are sent between nodes by NOTIFY, after the commit and on
a separate connection. They are an optimization: nodes also poll.

    engine.py   the contract, and how the modules below work together
    commits.py  the queue of commits, in batches; recovery of lost responses
    batch.py    many commits as the arguments of one call; pure functions
    reads.py    gets in batches, scans, the sweep and the server's clock
    lanes.py    batching of requests while all connections are busy
    hints.py    LISTEN and NOTIFY
    schema.py   tables and functions, as numbered migrations in sql/
    incarnation.py  detection of failovers and restores, and of lost commits
    link.py     connections; the only module that uses the driver
"""

from onceward.engine.postgres.engine import PostgresEngine

__all__ = ["PostgresEngine"]
