"""Forked processes: a child cannot use what its parent has opened, and must not close it."""

import ctypes
import os
from typing import Any, Protocol
from weakref import WeakSet

from onceward.errors import EngineStopped


class Inherited(Protocol):
    """An open object of the parent process."""

    def forked(self) -> None:
        """Release it in the child process, without any change to files or connections. Other
        threads of the parent do not exist, and may hold any lock."""


_opened: WeakSet[Any] = WeakSet()


def watch(opened: Inherited) -> None:
    """Call `opened.forked()` in each child process from now on."""
    _opened.add(opened)


def keep(*things: Any) -> None:
    """Keep objects of the parent process until the child ends: to free them would close or change
    files that the parent uses."""
    for thing in things:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def forked_error(what: str) -> EngineStopped:
    """The error of a child process that uses what its parent has opened."""
    return EngineStopped(
        f"{what} was opened before this process was forked. Open it in each process after the "
        "fork, with PostgreSQL. Or use `Client` with a server (`onceward serve`), or write jobs "
        "to an outbox in your own database",
        code="forked",
    )


def _forked() -> None:
    for opened in list(_opened):
        opened.forked()


os.register_at_fork(after_in_child=_forked)
