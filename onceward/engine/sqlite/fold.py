"""Folding: moves the memtable into the table in the background, in small sorted steps.

Rows are folded only after they are durable in the journal: a crash between two steps
leaves part of a commit in the table, and the replay of the journal puts it right.
"""

import asyncio
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor
from heapq import merge

import apsw

from onceward import limits
from onceward.clock import boot_ns
from onceward.engine.base import Record
from onceward.engine.memtable import ROWS_AT_ONCE, Memtable
from onceward.engine.sqlite.journal import Journal
from onceward.engine.sqlite.layers import Layers
from onceward.engine.sqlite.table import Table
from onceward.engine.sqlite.writer import Writer
from onceward.errors import EngineStopped, OncewardError, StorageFull

# Few enough that the disk is not busy for long with what is synced at once: commits wait for it.
_CHECKPOINT_ROWS = 4_000
# Between two pieces of work on filters.
_FILTERS_REST_S = 0.02
_RETRY_S = 1.0


class Folder:
    """One task that folds what is old when the journal grows long or nothing presses, and
    everything when memory runs short. What comes and goes in between never gets here."""

    def __init__(
        self,
        layers: Layers,
        writer: Writer,
        journal: Journal,
        table: Table,
        background: Executor,
        now_ms: Callable[[], int],
        calm_bytes: int = 0,
    ) -> None:
        """While there is no more in memory than `calm_bytes` that is newer than what it folds, it
        rests between steps: whoever commits needs processor and disk more urgently."""
        self._layers = layers
        self._writer = writer
        self._journal = journal
        self._table = table
        self._background = background
        self._now_ms = now_ms
        self._calm_bytes = calm_bytes
        self._wanted = asyncio.Event()
        self._progress = asyncio.Event()
        self._rows_since_checkpoint = _CHECKPOINT_ROWS  # a crash may have left a long log
        self.full: StorageFull | None = None
        """Set while the disk has no space to fold; the journal holds what waits."""
        self._stopping = False
        self._everything = False
        self._upto_seq = table.folded_seq
        self._marked_seq = table.folded_seq
        self._task = asyncio.create_task(self._run(), name="onceward-fold")

    def ask(self, *, everything: bool = False) -> None:
        """Fold soon: what the journal has too much of, or everything to free memory."""
        self._everything = self._everything or everything
        self._wanted.set()

    async def progress(self) -> None:
        """Wait until something was folded or failed to be."""
        self._progress.clear()
        await self._progress.wait()

    async def _run(self) -> None:
        try:
            await self._fold_when_asked()
        finally:
            self._progress.set()  # there will be none: let those who wait see why

    async def _fold_when_asked(self) -> None:
        while self._writer.failure is None and not self._stopping:
            upto_seq = 0
            try:
                async with asyncio.timeout(limits.FOLD_DELAY_S):
                    await self._wanted.wait()
                if self._everything:
                    upto_seq = self._writer.seq
            except TimeoutError:
                # Nothing presses: fold what has not changed for that long.
                upto_seq, self._marked_seq = self._marked_seq, self._writer.seq
            self._wanted.clear()
            self._everything = False
            try:
                await self.fold(max(upto_seq, self._journal.excess_seq(limits.JOURNAL_BYTES)))
                self.full = None
                await self._make_filters()
            except StorageFull as full:
                self.full = full
                self._progress.set()
                self._wanted.clear()
                asyncio.get_running_loop().call_later(_RETRY_S, self.ask)
            except apsw.BusyError:
                # Someone else writes to the file, which only its owner should: that will pass.
                self._wanted.clear()
                asyncio.get_running_loop().call_later(_RETRY_S, self.ask)
            except OncewardError:
                pass  # the writer has failed, and says so to everyone
            except Exception as error:
                self._writer.fail(
                    EngineStopped(
                        f"the table could not be written ({error}). Everything accepted is in "
                        "the journal. The node must stop; opening the database again recovers it."
                    )
                )

    async def fold(self, upto_seq: int) -> None:
        """Move what was last changed up to `upto_seq` into the table, and free the journal
        behind it. What changed again since, or is gone, is not written to the table."""
        run = asyncio.get_running_loop().run_in_executor
        if self._layers.frozen.count == 0:
            if upto_seq <= self._table.folded_seq:
                return
            for _ in self._layers.freeze(upto_seq, self._writer.seq):
                await asyncio.sleep(0)
            # Only now: what a freeze that was cut off set aside says nothing about the rest, and
            # folding that must not mark it as folded.
            self._upto_seq = upto_seq
        # Also what came after `_upto_seq`: it may have replaced rows of before in memory, and
        # those leave the journal below.
        if self._writer.durable_seq < self._writer.seq:
            await self._writer.synced()
        gone_ms = self._now_ms() - limits.SWEEP_SLACK_MS
        for step in steps(in_order(self._layers.frozen), gone_ms):
            if self._stopping:
                return
            if not step:
                await asyncio.sleep(0)
                continue
            began_ns = boot_ns()
            await run(self._background, self._table.fold, step)
            self._layers.release(step)
            self._progress.set()
            self._rows_since_checkpoint += len(step)
            if self._rows_since_checkpoint >= _CHECKPOINT_ROWS:
                await run(self._background, self._table.checkpoint)
                self._rows_since_checkpoint = 0
            if self._layers.active.size_bytes < self._calm_bytes:
                await self._rest(boot_ns() - began_ns)
        await run(self._background, self._table.fold, [], self._upto_seq, self._writer.durable_seq)
        self._journal.retire(self._upto_seq)
        await run(self._background, self._journal.trim, 1)

    async def _rest(self, for_ns: int) -> None:
        await asyncio.sleep(for_ns / 1e9)

    async def _make_filters(self) -> None:
        for _ in self._layers.filters.make():
            if self._stopping or self._wanted.is_set():
                return
            # They may be made of millions of keys, and nothing depends on them.
            await asyncio.sleep(_FILTERS_REST_S)

    async def close(self) -> None:
        """Stop after the step under way."""
        self._stopping = True
        self._calm_bytes = 0
        self._wanted.set()
        await asyncio.wait([self._task])

    async def fold_all(self) -> bool:
        """After `close`: fold what is left. False if that fails; the journal has it then.

        Nor is it tried if the task was cut off, maybe in mid-step: its thread may still write.
        """
        if self._task.cancelled() or self._task.exception() is not None:
            return False
        self._stopping = False
        try:
            while self._table.folded_seq < self._writer.seq:
                await self.fold(self._writer.seq)
        except (StorageFull, apsw.Error, OSError):
            return False
        return True


# All this runs in the event loop's thread, a little at a time. Another thread would keep the
# interpreter to itself for milliseconds whenever the loop lets go of it, which it does with
# every read of the table: the loop would all but stop.


def in_order(table: Memtable) -> Iterator[Record | None]:
    """All rows in the order of their keys; None now and then, for others to have their turn.
    What was given out may be dropped from the table meanwhile."""
    for name in (yield from _sorted(table.partitions)):
        rows = table.partitions[name].rows
        for sort in (yield from _sorted(rows)):
            yield rows[sort]


def _sorted(texts: Iterable[str]) -> Generator[None, None, Iterator[str]]:
    """The texts in order, sorted in pieces so that none takes long."""
    unsorted = list(texts)
    runs: list[list[str]] = []
    for start in range(0, len(unsorted), ROWS_AT_ONCE):
        if runs:
            yield
        runs.append(sorted(unsorted[start : start + ROWS_AT_ONCE]))
    return iter(runs[0]) if len(runs) == 1 else merge(*runs)


def steps(rows: Iterable[Record | None], gone_ms: int) -> Iterator[list[Record]]:
    """The rows in pieces, none with too many or too large rows; an empty one is a pause. Rows
    expired at `gone_ms` become removals, so that they never take up space in the table."""
    step: list[Record] = []
    step_bytes = 0
    for row in rows:
        if row is None:
            yield []
            continue
        if len(step) >= limits.FOLD_ROWS or step_bytes >= limits.FOLD_STEP_BYTES:
            yield step
            step, step_bytes = [], 0
        expires_at_ms = row.expires_at_ms
        gone = expires_at_ms is not None and expires_at_ms <= gone_ms
        step.append(Record(row.key, b"", row.version) if gone else row)
        step_bytes += len(row.value)
    if step:
        yield step
