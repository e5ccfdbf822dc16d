"""A process that owns a database and moves money about in it, for tests that look on.

Every transfer changes two accounts and leaves a record of itself, in one commit. So any
consistent state tells whether it is one: each account's balance is what the transfers
there say, and no more. What was acknowledged is reported through a pipe.
"""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from onceward import keys, limits
from onceward.engine.base import Record
from onceward.engine.sqlite import SQLiteEngine
from onceward.store import Store
from onceward.store.transaction import Transaction

ACCOUNTS = 64  # so that one commit founds them all
START = 1_000


class Bank:
    """Runs the process; `acknowledged` are the ids of transfers that are durable."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.acknowledged: set[str] = set()
        self._more = threading.Condition()
        self._ended = False
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bank", str(path)],
            cwd=Path(__file__).parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.endswith("\n"):
                with self._more:
                    self.acknowledged.add(line.strip())
                    self._more.notify_all()
        with self._more:
            self._ended = True
            self._more.notify_all()

    def work(self, transfers: int = 200) -> set[str]:
        """Wait for so many more; returns all that were acknowledged before now."""
        with self._more:
            enough = len(self.acknowledged) + transfers
            self._more.wait_for(lambda: self._ended or len(self.acknowledged) >= enough, 30)
            assert len(self.acknowledged) >= enough
            return set(self.acknowledged)

    def kill(self) -> set[str]:
        self._process.kill()
        return self._end()

    def close(self) -> set[str]:
        assert self._process.stdin
        self._process.stdin.close()
        return self._end()

    def _end(self) -> set[str]:
        self._process.wait(30)
        self._listener.join(30)
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        return self.acknowledged

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self._process.returncode is None:
            self.kill()


def audit(records: Iterable[Record], acknowledged: set[str]) -> int:
    """Assert that the records are one state of the bank, with all of these transfers in it."""
    balances: dict[str, int] = {}
    moved = dict.fromkeys(map(keys.number, range(ACCOUNTS)), START)
    found = set()
    for record in records:
        kind, *_ = record.key[0].split("#")
        value = json.loads(record.value)
        if kind == "account":
            balances[record.key[1]] = value
        elif kind == "transfer":
            found.add(record.key[1])
            moved[value["from"]] -= value["amount"]
            moved[value["to"]] += value["amount"]
    assert balances == moved
    assert acknowledged <= found
    return len(found)


async def run(path: str, callers: int = 32) -> None:
    """Open the bank, and transfer until standard input ends."""
    store = Store(await SQLiteEngine(path, memtable_bytes=1 << 20).open())

    async def found(tx: Transaction) -> None:
        for key in [("account", keys.number(number)) for number in range(ACCOUNTS)]:
            if await tx.get(key) is None:
                tx.put(key, START)

    await store.run(found)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), stop.set)
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(callers):
                group.create_task(_transfer_until(store, stop.is_set))
    finally:
        loop.remove_reader(sys.stdin.fileno())
        await store.engine.close()


async def _transfer_until(store: Store, stopped: Callable[[], bool]) -> None:
    def pick(count: int) -> int:
        return int(store.ids.fraction() * count)

    while not stopped():
        source, target = pick(ACCOUNTS), pick(ACCOUNTS)
        id_ = store.ids.new()
        await store.run(lambda tx: _transfer(tx, id_, source, target, pick(9) + 1))  # noqa: B023
        print(id_, flush=True)


async def _transfer(tx: Transaction, id_: str, source: int, target: int, amount: int) -> None:
    note = {"from": keys.number(source), "to": keys.number(target), "amount": amount}
    tx.put((keys.join("transfer", id_[-1]), id_), note)
    if source != target:
        for number, change in ((source, -amount), (target, amount)):
            key = ("account", keys.number(number))
            tx.put(key, await tx.get(key, int) + change)


if __name__ == "__main__":
    # Small segments and short pauses: the journal is folded and used again all the time.
    limits.SEGMENT_BYTES_FIRST = limits.SEGMENT_BYTES_MIN = limits.SEGMENT_BYTES_MAX = 64 << 10
    limits.FOLD_DELAY_S = 0.01
    asyncio.run(run(sys.argv[1]))
