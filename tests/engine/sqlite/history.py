"""A workload of which every state is known, and the judge of what a reopened database shows."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from onceward import limits
from onceward.engine.base import Delete, Engine, Put, Version, Write
from onceward.engine.sqlite import SQLiteEngine, fold
from onceward.errors import EngineStopped, OncewardError, Unavailable
from onceward.keys import Key

State = dict[Key, tuple[bytes, Version]]

HEAD: Key = ("head", "last")
"""Put by every commit, so that its version says how far a database has come."""
PARTITIONS = ("a", "b", "c")
NOW_MS = 1_000_000
MEMTABLE_BYTES = 64_000


def shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make segments, steps and the rest so small that a few commits meet all of them."""
    for name, value in {
        "SEGMENT_BYTES_FIRST": 4_096,
        "SEGMENT_BYTES_MIN": 8_192,
        "SEGMENT_BYTES_MAX": 16_384,
        "JOURNAL_BYTES": 8_192,
        "FOLD_ROWS": 7,
    }.items():
        monkeypatch.setattr(limits, name, value, raising=False)
    monkeypatch.setattr(fold, "_CHECKPOINT_ROWS", 40)


class History:
    """The states after each sequence number, and which commits were acknowledged."""

    def __init__(self) -> None:
        self.states: dict[int, State] = {0: {}}
        self.last = 0
        self.acknowledged = 0
        self.refused: list[OncewardError] = []
        self.on_begin: Callable[[int], None] = lambda seq: None
        self.on_done: Callable[[int], None] = lambda seq: None

    def begin(self, seq: int, writes: list[Write]) -> None:
        assert seq == self.last + 1
        state = dict(self.states[self.last])
        for write in writes:
            if type(write) is Put:
                state[write.key] = (write.value, seq)
            else:
                state.pop(write.key, None)
        self.states[seq] = state
        self.last = seq
        self.on_begin(seq)

    def restart(self, seq: int) -> None:
        """The database came up with this commit as its last: the later ones never were."""
        assert self.acknowledged <= seq <= self.last, (
            f"opened with commit {seq}; acknowledged were {self.acknowledged}, begun {self.last}"
        )
        for later in range(seq + 1, self.last + 1):
            del self.states[later]
        self.last = self.acknowledged = seq

    async def commit(self, engine: Engine, writes: list[Write]) -> None:
        """Commit, and note what came of it; raises what says that the engine has stopped."""
        begun: list[Version] = []

        def visible(version: Version) -> None:
            assert isinstance(version, int)
            begun.append(version)
            self.begin(version, writes)

        try:
            version = await engine.commit(writes, NOW_MS, visible)
        except EngineStopped:
            raise
        except Unavailable as error:
            self.refused.append(error)
            if begun:
                raise AssertionError(f"{error}: said of a commit that may be there") from error
            return
        assert begun == [version]
        assert isinstance(version, int)
        self.acknowledged = max(self.acknowledged, version)
        self.on_done(version)


def some_writes(random: Random) -> list[Write]:
    writes: dict[Key, Write] = {HEAD: Put(HEAD, b'"%d"' % random.getrandbits(32))}
    for _ in range(random.randrange(1, 6)):
        key = (random.choice(PARTITIONS), f"{random.randrange(12):02}")
        if random.random() < 0.35:
            writes[key] = Delete(key)
        else:
            writes[key] = Put(key, b'"%s"' % (b"x" * random.randrange(1, 150)))
    return list(writes.values())


async def work(
    engine: Engine, history: History, random: Random, *, rounds: int, callers: int = 3
) -> None:
    """Commit in rounds, some alone and some together, until done or the engine stops."""
    for _ in range(rounds):
        sharing = random.randint(1, callers)
        calls = [history.commit(engine, some_writes(random)) for _ in range(sharing)]
        for result in await asyncio.gather(*calls, return_exceptions=True):
            if result is not None:
                raise result


async def contents(engine: Engine) -> State:
    found = await engine.get([HEAD], NOW_MS)
    rows = [record for record in found if record is not None]
    for partition in PARTITIONS:
        rows += await engine.scan(partition, NOW_MS)
    return {row.key: (row.value, row.version) for row in rows}


async def judge(engine: Engine, history: History) -> None:
    """The open engine must show one whole state, with all that was acknowledged."""
    state = await contents(engine)
    _, seq = state.get(HEAD, (b"", 0))
    assert isinstance(seq, int)
    history.restart(seq)
    assert state == history.states[seq], f"commit {seq} is there in part"


async def reopen_and_judge(path: str, history: History) -> None:
    """Open with a healthy disk, compare, and commit some more."""
    async with SQLiteEngine(path) as engine:
        await judge(engine, history)
        await work(engine, history, Random(1), rounds=2)
        await judge(engine, history)
