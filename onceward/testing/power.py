"""Power cuts, simulated from a record of writes that reached the disk.

`PowerLog` observes a disk (`onceward.testing.disk`) and records every system call that changed
something, with your own marks in between, such as "commit 7 was answered". `Volume` applies the
record like a disk. After a power cut, all synced data is present. Unsynced data is present
completely, in single sectors, or not, both in files and in names of the directory.

    for entry in log.entries:
        volume.apply(entry)
        files = volume.after_cut(random)        # {path: content}
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final

from onceward.testing.disk import Observer, Operation

SECTOR_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class Mark:
    """A position in the record."""

    what: str
    number: int = 0
    detail: object = None


class PowerLog(Observer):
    """The record. Several processes may write it, one after the other (`Watched.kill`)."""

    def __init__(self) -> None:
        self.entries: list[Operation | Mark] = []

    def mark(self, what: str, number: int = 0, detail: object = None) -> None:
        self.entries.append(Mark(what, number, detail))

    def after(self, operation: Operation) -> None:
        self.entries.append(operation)


@dataclass(slots=True)
class _File:
    """The durable content of a file, and the operations since the last sync."""

    content: bytearray = field(default_factory=bytearray)
    unsynced: list[Operation] = field(default_factory=list)

    def sync(self, sync: Operation) -> None:
        """Make all operations durable, or only one write if the sync is of that write."""
        done, self.unsynced = self.unsynced, []
        for operation in done:
            if sync.data and (operation.offset, operation.data) != (sync.offset, sync.data):
                self.unsynced.append(operation)
            else:
                _perform(self.content, operation)

    def after_cut(self, chance: "_Chance") -> bytes:
        content = bytearray(self.content)
        for operation in self.unsynced:
            for part in _parts(operation):
                if chance.happened():
                    _perform(content, part)
        return bytes(content)


class _Chance:
    """Whether an unsynced operation took effect: always, never, or at random."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._likely = random.choice((0.0, 0.0, 0.1, 0.5, 0.9, 1.0))

    def happened(self) -> bool:
        return self._random.random() < self._likely


class Volume:
    """A disk with one directory, initially empty."""

    def __init__(self) -> None:
        self._files: list[_File] = []
        self._names: dict[str, int] = {}
        """As seen by the running system."""
        self._durable: dict[str, int] = {}
        self._changes: list[tuple[str | None, str | None, int]] = []
        """Names removed and added since the last sync of the directory: (old, new, file)."""

    def apply(self, entry: Operation | Mark) -> None:
        if isinstance(entry, Mark):
            return
        _, _, verb = entry.kind.partition(".")
        if verb == "open":
            if entry.path not in self._names:
                self._files.append(_File())
                self._rename(None, entry.path, len(self._files) - 1)
        elif verb in ("write", "truncate"):
            self._file(entry.path).unsynced.append(entry)
        elif verb == "sync":
            self._file(entry.path).sync(entry)
        elif verb == "rename":
            self._rename(entry.path, entry.target, self._names[entry.path])
        elif verb == "remove":
            self._rename(entry.path, None, self._names[entry.path])
        if verb == "sync_directory" or (verb in ("sync", "remove") and entry.created):
            self._durable = dict(self._names)
            self._changes.clear()

    def after_cut(self, random: Random) -> dict[str, bytes]:
        """The files as the next boot might find them."""
        chance = _Chance(random)
        names = dict(self._durable)
        for old, new, number in self._changes:
            if chance.happened():
                if old is not None and names.get(old) == number:
                    del names[old]
                if new is not None:
                    names[new] = number
        return {
            path: self._files[number].after_cut(_Chance(random)) for path, number in names.items()
        }

    def _file(self, path: str) -> _File:
        return self._files[self._names[path]]

    def _rename(self, old: str | None, new: str | None, number: int) -> None:
        if old is not None:
            del self._names[old]
        if new is not None:
            self._names[new] = number
        self._changes.append((old, new, number))


def restore(files: dict[str, bytes], folder: str) -> None:
    """Write the files that a power cut left into another folder, under their last names."""
    for path, content in files.items():
        with open(os.path.join(folder, os.path.basename(path)), "wb") as file:
            file.write(content)


def _perform(content: bytearray, operation: Operation) -> None:
    end = operation.offset + len(operation.data)
    if operation.kind.endswith("truncate"):
        del content[operation.offset :]
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    content[operation.offset : end] = operation.data


def _parts(operation: Operation) -> Iterator[Operation]:
    """A write, split by disk sectors."""
    if not operation.data:
        yield operation
        return
    start, end = operation.offset, operation.offset + len(operation.data)
    while start < end:
        upto = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        data = operation.data[start - operation.offset : upto - operation.offset]
        yield operation._replace(offset=start, data=data)
        start = upto
