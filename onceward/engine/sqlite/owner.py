"""Ownership: a lock file that gives one process exclusive access to a database.

The lock is an `flock`, so it ends with the process. The text in the file only shows its holder. The
file is never removed, since two processes could then lock two different files of the same name.

A forked child inherits the descriptor and would keep the lock, so it closes it.
"""

import fcntl
import json
import os
import socket
import sys
import time
from typing import Any
from weakref import WeakSet

from onceward.errors import CannotOpen

# `is_owned` holds the lock for a moment, so a lock that is taken is retried this often.
_TRIES_MAX = 5
_PAUSE_S = 0.01


class Owner:
    """The lock of a database; raises `CannotOpen` (database_in_use) if another process holds it."""

    def __init__(self, database_path: str) -> None:
        self.path = f"{database_path}-owner"
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not _lock(self._fd):
            holder = describe(database_path)
            os.close(self._fd)
            raise CannotOpen(
                f"{database_path} is in use by {holder}. Stop that process, or use another "
                "file. Other processes can use `Client` with a server (`onceward serve`), write "
                "jobs to an outbox in their own database, or share a PostgreSQL database. To read "
                "the data while it runs, use `onceward db inspect` or sqlite3.",
                code="database_in_use",
                holder=holder,
            )
        self.database = _read_note(self._fd).get("database")
        """The ID of the database that the last owner opened, or None."""
        note: dict[str, Any] = {
            "database": self.database,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "command": " ".join([os.path.basename(sys.argv[0] or "python"), *sys.argv[1:]])[:200],
        }
        self._note = note
        try:
            self._write(note)
        except OSError:
            os.close(self._fd)
            raise
        _owners.add(self)

    def remember(self, database_id: bytes) -> None:
        """Store the ID of the open database."""
        self.database = database_id.hex()
        self._note["database"] = self.database
        self._write(self._note)

    def _write(self, note: dict[str, Any]) -> None:
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, json.dumps(note).encode(), 0)

    def release(self) -> None:
        """Release the lock. Idempotent."""
        if self._fd >= 0:
            try:
                os.ftruncate(self._fd, 0)
                if self.database:
                    self._write({"database": self.database})
            except OSError:
                pass  # a stale note does no harm: the lock decides
            finally:
                # Closing alone would leave the lock to children that were forked without the hook
                # below.
                fcntl.flock(self._fd, fcntl.LOCK_UN)
                self.forget()

    def forget(self) -> None:
        """Close the descriptor without releasing the lock of the parent process."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def _read_note(fd: int) -> dict[str, Any]:
    try:
        note = json.loads(os.pread(fd, 4_096, 0))
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


_owners: WeakSet[Owner] = WeakSet()


def _forget_all() -> None:
    for owner in list(_owners):
        owner.forget()


os.register_at_fork(after_in_child=_forget_all)


def _lock(fd: int) -> bool:
    for left in reversed(range(_TRIES_MAX)):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if left:
                time.sleep(_PAUSE_S)
    return False


def describe(database_path: str) -> str:
    """A readable description of the process that holds the database."""
    try:
        with open(f"{database_path}-owner", encoding="utf-8") as file:
            note = json.load(file)
        return f"process {note['pid']} on {note['host']} ({note['command']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def is_owned(database_path: str) -> bool:
    """Whether a process holds the database."""
    try:
        fd = os.open(f"{database_path}-owner", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
