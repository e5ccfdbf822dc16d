"""Folding: moves the memtable into the table in the background, in small sorted steps.

Rows are folded only after they are durable in the journal. A crash between two steps leaves part of
a commit in the table, and replaying the journal completes it.
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

# Small enough that the disk is not busy for long with one sync, since commits wait for it.
_CHECKPOINT_ROWS = 4_000
# The pause between two steps of building filters.
_FILTERS_REST_S = 0.02
_RETRY_S = 1.0


class Folder:
    """A background task that folds old records, or all records when memory is short.

    It folds old records when the journal is long or the system is idle. Records that are deleted
    before that never reach the table.
    """

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
        """`calm_bytes`: while newer records in memory use less, the task pauses between steps,
        which leaves processor and disk to commits.
        """
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
        """Set while the disk has no space to fold; the journal keeps the pending records."""
        self.idle = False
        """Whether all records are folded; then `ask` must be called after the next commit."""
        self._stopping = False
        self._everything = False
        self._upto_seq = table.folded_seq
        self._marked_seq = table.folded_seq
        self._task = asyncio.create_task(self._run(), name="onceward-fold")

    def ask(self, *, everything: bool = False) -> None:
        """Request a fold: of the excess part of the journal, or with `everything` of all
        records."""
        self._everything = self._everything or everything
        self._wanted.set()

    async def progress(self) -> None:
        """Wait until records were folded or a fold failed."""
        self._progress.clear()
        await self._progress.wait()

    async def _run(self) -> None:
        try:
            await self._fold_when_asked()
        finally:
            self._progress.set()  # wakes waiters so that they see the failure

    async def _fold_when_asked(self) -> None:
        while self._writer.failure is None and not self._stopping:
            upto_seq = 0
            try:
                async with asyncio.timeout(None if self.idle else limits.FOLD_DELAY_S):
                    await self._wanted.wait()
                if self._everything:
                    upto_seq = self._writer.seq
            except TimeoutError:
                # Idle: fold records that did not change during the last interval.
                upto_seq, self._marked_seq = self._marked_seq, self._writer.seq
            self.idle = False
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
                # Another process writes to the file, which only its owner should do. Retry later.
                self._wanted.clear()
                asyncio.get_running_loop().call_later(_RETRY_S, self.ask)
            except OncewardError:
                pass  # the writer has failed and reports the error to every caller
            except Exception as error:
                self._writer.fail(
                    EngineStopped(
                        f"the table could not be written ({error}). All accepted commits are in "
                        "the journal. Stop the node; opening the database again recovers it."
                    )
                )
            self.idle = self._table.folded_seq >= self._writer.seq

    async def fold(self, upto_seq: int) -> None:
        """Move records last changed up to `upto_seq` into the table, and free their journal
        segments.

        Records that have changed or been deleted since are not written to the table.
        """
        run = asyncio.get_running_loop().run_in_executor
        if self._layers.frozen.count == 0:
            if upto_seq <= self._table.folded_seq:
                return
            for _ in self._layers.freeze(upto_seq, self._writer.seq):
                await asyncio.sleep(0)
            # Only now: an interrupted freeze has set aside only a part of the records, so folding
            # these must not mark all as folded.
            self._upto_seq = upto_seq
        # Later commits must be durable as well: they may have replaced older rows in memory, whose
        # journal segments are freed below.
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
            # Filters may have millions of keys, and are not urgent.
            await asyncio.sleep(_FILTERS_REST_S)

    async def close(self) -> None:
        """Stop after the current step."""
        self._stopping = True
        self._calm_bytes = 0
        self._wanted.set()
        await asyncio.wait([self._task])

    async def fold_all(self) -> bool:
        """After `close`, fold the remaining records. Returns False on failure; the journal has them
        then.

        It does nothing if the task was cancelled or failed: its thread may still be writing.
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


# The following runs in the event loop's thread in small pieces. A second thread would take the
# interpreter lock for milliseconds whenever the loop releases it, which it does at every read of
# the table, and so almost stop the loop.


def in_order(table: Memtable) -> Iterator[Record | None]:
    """All rows in the order of their keys, with None at intervals, so that other tasks can run.

    The caller may drop rows it has received from the table.
    """
    for name in (yield from _sorted(table.partitions)):
        rows = table.partitions[name].rows
        for sort in (yield from _sorted(rows)):
            yield rows[sort]


def _sorted(texts: Iterable[str]) -> Generator[None, None, Iterator[str]]:
    """The texts in order, sorted in pieces that each take little time."""
    unsorted = list(texts)
    runs: list[list[str]] = []
    for start in range(0, len(unsorted), ROWS_AT_ONCE):
        if runs:
            yield
        runs.append(sorted(unsorted[start : start + ROWS_AT_ONCE]))
    return iter(runs[0]) if len(runs) == 1 else merge(*runs)


def steps(rows: Iterable[Record | None], gone_ms: int) -> Iterator[list[Record]]:
    """Batches of rows, limited in number and bytes; an empty batch is a pause.

    Rows that expired by `gone_ms` become deletions, so that they never take space in the table.
    """
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
