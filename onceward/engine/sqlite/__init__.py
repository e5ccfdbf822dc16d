"""The SQLite engine: a journal, a memtable and a table, owned by one process.

A commit is judged and applied in memory, appended to the journal, and answered when the
journal is durable: all commits of one turn of the event loop share one write. In the
background the memtable is folded into the SQLite table, and the journal segments it
covers are used again. What came and went between two folds never touches the table.

    engine.py    the contract, and how the pieces below work together
    layers.py    what a read sees: memtable, frozen memtable, cache, table
    writer.py    group commit: one durable write for all that wait
    frames.py    how segments and frames are written down
    journal.py   segments on disk, and their recovery
    fold.py      moves the memtable into the table, step by step
    table.py     the SQLite file itself
    owner.py     the lock that names the process which owns the file
    disk.py      the system calls, so that tests can make each of them fail

From other processes, while the owner goes on or not:

    reader.py    table and journal as of one moment
    summary.py   what is in there, in numbers
    backup.py    a copy of it
    check.py     whether it is damaged
"""

from onceward.engine.sqlite.engine import SQLiteEngine

__all__ = ["SQLiteEngine"]
