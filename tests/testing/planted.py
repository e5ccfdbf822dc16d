"""The core's code with one mistake planted in each copy: what the simulator must find.

`PLANTED` maps a name to the broken scenario, the kinds of violations that it may show, and
a seed with which it shows. When the code under test changes, seeds may go stale: run
`python -m tests.testing.planted` to find new ones.
"""

import logging
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, NamedTuple

from onceward.engine.base import Check, Delete, Put
from onceward.errors import Conflict
from onceward.store.cache import Heads
from onceward.store.store import Commit, Store
from onceward.store.transaction import Transaction
from onceward.testing.simulation import Message, Node, Scenario, SimulationFailed, simulate
from onceward.testing.simulation.core import Accounts, Core


class ReadsUnvalidated(Store):
    """What only read is answered without a look whether it still holds."""

    async def _commit(self, tx, writes, end_turn):
        if not all(type(write) is Check for write in writes):
            await super()._commit(tx, writes, end_turn)


class RaisedUnvalidated(Store):
    """What a function raised is passed on without a look whether it still holds."""

    async def run(self, fn, **options):
        async def outcome(tx):
            try:
                return await fn(tx), None
            except Exception as error:
                tx._checked.clear()
                tx._writes.clear()
                tx._scanned = None
                return None, error

        result, error = await super().run(outcome, **options)
        if error is not None:
            raise error
        return result


class ChecksDropped(Store):
    """Reads are not checked when the transaction also writes something."""

    async def _commit(self, tx, writes, end_turn):
        changes = [write for write in writes if type(write) is not Check]
        await super()._commit(tx, changes or writes, end_turn)


class HeadsTrusted(Store):
    """A turn in a line ends before its commit shows, and cached heads are not checked."""

    async def _commit(self, tx, writes, end_turn):
        if end_turn is not None:
            end_turn()
        trusted = [
            Put(write.key, write.value, write.expires_at_ms)
            if type(write) is Put and write.key in tx.heads_used
            else write
            for write in writes
            if type(write) is not Check or write.key not in tx.heads_used
        ]
        await super()._commit(tx, trusted, end_turn)


class HeadsKept(Store):
    """Cached heads stay after a conflict, so it comes again and again."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._heads = _Sticky()


class _Sticky(Heads):
    def drop(self, key):
        pass

    def put(self, record):
        if record.key not in self.records:
            super().put(record)


class HookAtOnce(Store):
    """Hooks hear of a commit when it shows, not when it is durable."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._hasty: list[Callable[[Commit], None]] = []

    def on_durable(self, hook):
        self._hasty.append(hook)
        return lambda: self._hasty.remove(hook)

    async def _commit(self, tx, writes, end_turn):
        told = False

        def shown():
            nonlocal told
            for hook in () if told else self._hasty:
                hook(Commit(0, writes, tx.now_ms))
            told = True
            if end_turn is not None:
                end_turn()

        await super()._commit(tx, writes, shown)


class HookForFailures(Store):
    """Hooks of a transaction are called though its commit may fail."""

    async def _commit(self, tx, writes, end_turn):
        for hook in tx.hooks:
            hook()
        tx.hooks.clear()
        await super()._commit(tx, writes, end_turn)


class LineBrokenByCancel(Store):
    """A caller that gave up is looked for in the line though it has been passed over."""

    def _next_turn(self, line):
        for turn in list(self._lines[line]):
            if turn.cancelled():
                raise ValueError("a cancelled caller stands in the line")
        super()._next_turn(line)


class WallTime(Store):
    """Time is what the wall clock shows."""

    def __init__(self, engine, clock, ids) -> None:
        super().__init__(engine, clock, ids)
        clock.now_ms = lambda: clock._wall_ns() // 1_000_000


class _BrokenTransaction(Store):
    """A store that runs functions on a broken transaction."""

    transaction: ClassVar[type[Transaction]]

    async def run(self, fn, **options):
        async def broken(tx):
            tx.__class__ = self.transaction
            return await fn(tx)

        return await super().run(broken, **options)


class ReadForgotten(_BrokenTransaction):
    """What was read is forgotten when it is written: the write is blind."""

    class transaction(Transaction):  # noqa: N801
        def finish(self, *, write):
            for key in self._writes:
                self.seen.pop(key, None)
            return super().finish(write=write)


class OwnWritesUnseen(_BrokenTransaction):
    """A transaction does not see what it has put."""

    class transaction(Transaction):  # noqa: N801
        async def get(self, key, *args, **options):
            own, self._writes = self._writes, {}
            try:
                return await super().get(key, *args, **options)
            finally:
                self._writes = {**own, **self._writes}


class OwnDeletesScanned(_BrokenTransaction):
    """A scan still shows what the transaction has deleted."""

    class transaction(Transaction):  # noqa: N801
        async def scan(self, *args, **options):
            own = self._writes
            self._writes = {key: w for key, w in own.items() if not isinstance(w, Delete)}
            try:
                return await super().scan(*args, **options)
            finally:
                self._writes = own


class ScanUnwaited(_BrokenTransaction):
    """What only a scan has shown is answered before it is durable."""

    class transaction(Transaction):  # noqa: N801
        def finish(self, *, write):
            self._scanned = None
            return super().finish(write=write)


class ReadsDiffer(_BrokenTransaction):
    """Two reads of a key at the same time see different values; the last one is checked."""

    class transaction(Transaction):  # noqa: N801
        async def get_many(self, keys, *args):
            found = await self._engine.get(keys, self.now_ms)
            self.seen.update(zip(keys, found, strict=True))
            return await super().get_many(keys, *args)


class UnknownIsFailure:
    """An engine for which a commit without an answer counts as not applied."""

    def __new__(cls, engine):
        async def settle(sent):
            return Conflict("not applied")

        engine.settle = settle
        return engine


class UnknownIsSuccess:
    """An engine for which a commit without an answer counts as applied."""

    def __new__(cls, engine):
        async def settle(sent):
            return -1

        engine.settle = settle
        return engine


class FenceSkipped:
    """An engine that looks for a commit without an answer, but lets it arrive later."""

    def __new__(cls, engine):
        async def settle(sent):
            return await sent.outcome if sent.arrived else Conflict("not applied")

        engine.settle = settle
        return engine


class EarlyAnswer:
    """A local engine that answers before a commit is durable."""

    def __new__(cls, engine):
        async def at_once(position):
            pass

        if hasattr(engine.inner, "_durable"):
            real = engine.inner._durable

            def sync_only(position):
                engine.inner._sync()
                return at_once(position)

            engine.inner._durable = sync_only
            engine.inner.close = lambda: real(0)
        return engine


class EarlyReadAnswer:
    """A local engine whose checks do not wait for what they have seen."""

    def __new__(cls, engine):
        inner = engine.inner
        commit = inner.commit

        async def hasty(writes, now_ms, visible=None):
            if all(type(write) is Check for write in writes) and hasattr(inner, "_inner"):
                return await inner._inner.commit(writes, now_ms, visible)
            return await commit(writes, now_ms, visible)

        inner.commit = hasty
        return engine


class HalfApplied:
    """An engine that sometimes applies a part of a commit."""

    def __new__(cls, engine):
        commit = engine.inner.commit

        async def half(writes, now_ms, visible=None):
            puts = [write for write in writes if type(write) is Put]
            if len(puts) > 2 and now_ms % 5 == 0:
                writes = [write for write in writes if write is not puts[1]]
            return await commit(writes, now_ms, visible)

        engine.inner.commit = half
        return engine


class ExpiredShown:
    """An engine that shows records for a while after they have expired."""

    def __new__(cls, engine):
        get, commit = engine.inner.get, engine.inner.commit
        engine.inner.get = lambda keys, now_ms: get(keys, now_ms - 1000)
        engine.inner.commit = lambda writes, now_ms, visible=None: commit(
            writes, now_ms - 1000, visible
        )
        return engine


class DedupeApart(Accounts):
    """Whether a transfer was made already is looked up in a transaction of its own."""

    async def handle(self, node: Node, message: Message) -> Any:
        if message.request[0] == "audit":
            return await super().handle(node, message)
        key = ("transfer", message.id)
        answer = await node.run(lambda tx: tx.get(key))
        return answer or await node.run(lambda tx: self._again(tx, message))

    async def _again(self, tx: Transaction, message: Message) -> Any:
        own_get = tx.get
        tx.get = lambda key, *more: _none() if key[0] == "transfer" else own_get(key, *more)
        return await self.transfer(tx, message)


async def _none() -> None:
    return None


def with_store(broken: Callable[..., Store]) -> type[Scenario]:
    class Planted(Core):
        def make_store(self, engine, clock, ids):
            return broken(engine, clock, ids)

    Planted.__name__ = broken.__name__
    return Planted


def with_engine(broken: Callable[[Any], Any]) -> type[Scenario]:
    class Planted(Core):
        def make_engine(self, engine):
            return broken(engine)

    Planted.__name__ = broken.__name__
    return Planted


class ApartCore(Core):
    parts = (DedupeApart, *Core.parts[1:])


class Bug(NamedTuple):
    """A scenario with wrong code, the violations it may report, and a seed that reports one."""

    scenario: type[Scenario]
    kinds: tuple[str, ...]
    seed: int
    plant: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Patches the code under test, unless the scenario itself has the wrong code."""


STALE = ("torn read", "not linearizable", "not durable", "lost")
LOST = ("lost update", "lost", "not linearizable", "not durable", "two holders")
PLANTED = {
    "read-only answers are not validated": Bug(with_store(ReadsUnvalidated), STALE, 0),
    "raised errors are not validated": Bug(with_store(RaisedUnvalidated), STALE, 80),
    "reads are not checked at commit": Bug(
        with_store(ChecksDropped), ("torn read", "wrong answer", "not linearizable"), 119
    ),
    "an unknown outcome counts as failure": Bug(
        with_engine(UnknownIsFailure), ("applied twice",), 17
    ),
    "an unknown outcome counts as success": Bug(with_engine(UnknownIsSuccess), LOST, 13),
    "a lost commit is not fenced": Bug(
        with_engine(FenceSkipped), ("applied twice", "not linearizable"), 23
    ),
    "a line ends early, and heads are trusted": Bug(
        with_store(HeadsTrusted), ("lost update", "lost", "torn read", "applied twice"), 0
    ),
    "heads are kept after a conflict": Bug(with_store(HeadsKept), ("stuck",), 0),
    "hooks hear of what is not durable": Bug(with_store(HookAtOnce), ("hook",), 4),
    "hooks hear of what failed": Bug(with_store(HookForFailures), ("hook",), 0),
    "a cancelled caller breaks a line": Bug(with_store(LineBrokenByCancel), ("error",), 67),
    "time follows the wall clock": Bug(with_store(WallTime), ("early", "two holders"), 3),
    "a read is forgotten when written": Bug(with_store(ReadForgotten), LOST, 0),
    "own writes are not seen": Bug(with_store(OwnWritesUnseen), ("own write",), 1),
    "own deletes are scanned": Bug(with_store(OwnDeletesScanned), ("own write",), 1),
    "scans are answered before durability": Bug(with_store(ScanUnwaited), STALE, 29),
    "reads at the same time differ": Bug(with_store(ReadsDiffer), ("torn read", "lost update"), 13),
    "answers come before durability": Bug(
        with_engine(EarlyAnswer), ("lost", "not durable", "hook", "lost update"), 4
    ),
    "read answers come before durability": Bug(
        with_engine(EarlyReadAnswer), (*STALE, "two holders"), 9
    ),
    "commits are applied by half": Bug(
        with_engine(HalfApplied), ("lost", "lost update", "torn read", "not durable"), 2
    ),
    "expired records are shown": Bug(with_engine(ExpiredShown), ("expired",), 3),
    "duplicates are looked up apart": Bug(ApartCore, ("lost", "lost update", "wrong answer"), 9),
}


def shows(bug: Bug) -> bool:
    """Whether a bug shows with its seed, or soon after: whoever changes the code under test changes
    the course of its runs, and then one of the next seeds will do."""
    return find(bug, range(bug.seed, bug.seed + 60)) is not None


def find(bug: Bug, seeds: range) -> tuple[int, str] | None:
    """The first seed with which a bug shows as what it is."""
    for seed in seeds:
        try:
            with bug.plant():
                simulate(bug.scenario, seed)
        except SimulationFailed as failed:
            if failed.kind in bug.kinds:
                return seed, failed.kind
            # An 'error' may mean that the planted bug itself no longer fits the code under test.
            print(f"    seed {seed} shows {failed.kind!r}: {failed.__cause__!r}"[:200])
    return None


def search(planted: Mapping[str, Bug]) -> None:
    """Print a seed for each bug, or for those whose name contains the argument."""
    logging.disable()
    for name, bug in planted.items():
        if len(sys.argv) < 2 or sys.argv[1] in name:
            print(f"{name}: {find(bug, range(3000))}", flush=True)


if __name__ == "__main__":
    search(PLANTED)
