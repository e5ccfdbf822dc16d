"""The SQLite engine: a journal, a memtable and a table, owned by one process.

A commit is validated and applied in memory, appended to the journal, and acknowledged when the
journal is durable. All commits of one turn of the event loop share one write. A background task
folds the memtable into the SQLite table and then reuses the journal segments that it covers.
Records that are created and deleted between two folds never reach the table.

    engine.py    the contract, and how the modules below work together
    layers.py    reads: memtable, frozen memtable, cache, table
    writer.py    group commit: one durable write for all waiting commits
    frames.py    the format of segments and frames
    journal.py   segments on disk, and their recovery
    fold.py      moves the memtable into the table, step by step
    table.py     the SQLite file
    owner.py     the lock that names the process which owns the file
    disk.py      the system calls, which tests can make fail

From other processes, whether or not the owner is running:

    reader.py    a snapshot of table and journal
    summary.py   statistics
    backup.py    a copy
    check.py     integrity checks
"""

from onceward.engine.sqlite.engine import SQLiteEngine

__all__ = ["SQLiteEngine"]
