"""A process to be killed: commits under load, and says what was acknowledged.

Run as `python -m tests.engine.sqlite.child PATH CLOSE_AFTER [slow] [unsynced]`. On stdout
come "opening", "open", then a line for each acknowledged commit, and "closing" after so many
of them, if CLOSE_AFTER is not 0. With `slow` the disk seems slow, so that syncs run in a
thread; `unsynced` is for a test of the tests: a disk that forgets.

Every caller counts up its own counter, and its records follow from that number alone; so
anyone can tell from the counter what must be there. Some also move money between accounts.
"""

import asyncio
import os
import sys
from itertools import count

from onceward import limits
from onceward.clock import boot_ns
from onceward.engine.base import Put
from onceward.engine.sqlite import SQLiteEngine, fold
from onceward.engine.sqlite.disk import Disk
from onceward.errors import Unavailable
from onceward.keys import Key
from onceward.store.store import Commit, Store
from onceward.store.transaction import Transaction

CALLERS = 64
ACCOUNTS = 10
KEPT = 8
"""So many of its latest records a caller keeps."""


def counter(caller: int) -> Key:
    return ("counter", f"{caller:03}")


def kept(caller: int, number: int) -> Key:
    return (f"kept#{caller}", f"{number % (2 * KEPT):02}")


def account(number: int) -> Key:
    return ("account", f"{number % ACCOUNTS}")


def shrink() -> None:
    """Small segments and steps, so that a kill meets switches, folds and checkpoints."""
    limits.SEGMENT_BYTES_FIRST = 64 << 10
    limits.SEGMENT_BYTES_MIN = 128 << 10
    limits.SEGMENT_BYTES_MAX = 256 << 10
    limits.JOURNAL_BYTES = 256 << 10
    limits.FOLD_ROWS = 50
    fold._CHECKPOINT_ROWS = 500


class Forgetful(Disk):
    """Syncs nothing."""

    def bypass_cache(self, fd: int, block_bytes: int) -> bool:
        return False  # what bypasses the cache is on the device without a sync

    def pwrite_durably(self, fd: int, data: memoryview, offset: int) -> int:
        return self.pwrite(fd, data, offset)

    def sync(self, fd: int) -> None:
        pass

    def sync_all(self, fd: int) -> None:
        pass


async def count_up(tx: Transaction, caller: int) -> None:
    number = (await tx.get(counter(caller)) or 0) + 1
    tx.put(counter(caller), number)
    tx.put(kept(caller, number), {"number": number, "padding": "x" * (number * 7 % 300)})
    tx.delete(kept(caller, number + KEPT))
    if caller % 8 == 0:
        giver, taker = account(number), account(number * 3 + caller // 8 + 1)
        if giver != taker:
            tx.put(giver, (await tx.get(giver) or 0) - number)
            tx.put(taker, (await tx.get(taker) or 0) + number)


class Reporter:
    """Writes what was acknowledged in one turn of the loop as one piece."""

    def __init__(self) -> None:
        self.count = 0
        self.enough = asyncio.Event()
        self.close_after = 0
        self._lines: list[str] = []

    def durable(self, commit: Commit) -> None:
        for write in commit.writes:
            if type(write) is Put and write.key[0] == "counter":
                if not self._lines:
                    asyncio.get_running_loop().call_soon(self._flush)
                self._lines.append(f"{int(write.key[1])} {int(write.value)} {commit.version}\n")
        self.count += 1
        if self.count == self.close_after:
            self.enough.set()

    def _flush(self) -> None:
        say("".join(self._lines))
        self._lines.clear()


def say(text: str) -> None:
    data = text.encode()
    while data:
        data = data[os.write(1, data) :]


async def main(path: str, close_after: int, options: list[str]) -> None:
    shrink()
    say("opening\n")
    engine = await SQLiteEngine(
        path,
        memtable_bytes=400_000,
        disk=Forgetful() if "unsynced" in options else Disk(),
        elapsed_ns=count(step=10**9).__next__ if "slow" in options else boot_ns,
    ).open()
    say("open\n")
    store, reporter = Store(engine), Reporter()
    reporter.close_after = close_after
    store.on_durable(reporter.durable)

    async def call(caller: int) -> None:
        while True:
            await store.run(lambda tx: count_up(tx, caller))

    calls = [asyncio.create_task(call(caller)) for caller in range(CALLERS)]
    enough = asyncio.create_task(reporter.enough.wait())
    await asyncio.wait([enough, *calls], return_when=asyncio.FIRST_COMPLETED)
    say("closing\n")
    await engine.close()
    for error in await asyncio.gather(*calls, return_exceptions=True):
        if not isinstance(error, Unavailable):
            raise error
    say("closed\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
