"""The PostgreSQL engine: one table, shared by any number of nodes.

A node collects the commits that come while others are under way, and has the server judge
and apply them all in one call, each on its own: one round trip and one sync for many. Gets
are collected likewise. Hints go from node to node by NOTIFY, after the commit and on a
connection of their own; polling suffices without them.

    engine.py   the contract, and how the pieces below work together
    commits.py  what waits to be committed, in batches; how lost answers are found again
    batch.py    many commits as the arguments of one call: pure
    reads.py    gets in batches, scans, the sweep and the server's clock
    lanes.py    who comes while all are busy shares the next batch
    hints.py    LISTEN and NOTIFY
    schema.py   tables and functions, by numbered migrations in sql/
    incarnation.py  failovers and restores: noticed, and what they lost
    link.py     connections: the one place that knows the driver
"""

from onceward.engine.postgres.engine import PostgresEngine

__all__ = ["PostgresEngine"]
