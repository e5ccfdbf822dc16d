"""The SQLite engine: implements the contract with journal, layers and fold."""

import asyncio
import errno
import gc
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import apsw

from onceward import forks, limits
from onceward.clock import boot_ns
from onceward.engine.base import (
    ABSENT,
    Check,
    Delete,
    Engine,
    Incarnation,
    Record,
    Version,
    Watch,
    Watchers,
    Write,
    admit,
    admit_scan,
    too_many_keys,
)
from onceward.engine.memtable import ROWS_AT_ONCE
from onceward.engine.sqlite.disk import Disk
from onceward.engine.sqlite.fold import Folder
from onceward.engine.sqlite.journal import Journal, segment_paths
from onceward.engine.sqlite.layers import Layers
from onceward.engine.sqlite.owner import Owner
from onceward.engine.sqlite.table import (
    Table,
    connect,
    damaged_pages,
    explained,
    inspect_path,
    journal_missing,
    page_problem,
)
from onceward.engine.sqlite.writer import ROW_OVERHEAD_BYTES, Writer
from onceward.errors import CannotOpen, Conflict, StorageFull
from onceward.ids import random_bytes
from onceward.keys import Key

# Commits are delayed from this fill level of the memtable, up to the maximum pause at a full one.
# They wait when it is at twice its size.
_EASE_FROM = 0.6
_EASE_PAUSE_S_MAX = 0.1


NO_SEGMENT = "no_journal_segment"
"""The alarm while no journal segment can be created."""


class SQLiteEngine(Engine):
    """Records in one SQLite file and its journal, owned by this process."""

    shared = False

    def __init__(
        self,
        path: str,
        *,
        memtable_bytes: int = limits.MEMTABLE_BYTES,
        cache_bytes: int = limits.CACHE_BYTES,
        disk: Disk | None = None,
        vfs: str | None = None,
        elapsed_ns: Callable[[], int] = boot_ns,
    ) -> None:
        """Args:     path: The SQLite file; the journal is beside it.     memtable_bytes: The memory
        for records that are not yet in the table.     cache_bytes: The memory for cached reads.
        disk, vfs, elapsed_ns: For tests.
        """
        # The same lock and journal for every symbolic link to the file.
        self.path = os.path.realpath(path)
        self._memtable_bytes = memtable_bytes
        self._ease_bytes = int(memtable_bytes * _EASE_FROM)
        self._fold_bytes = memtable_bytes // 3
        self._cache_bytes = cache_bytes
        self._disk = disk or Disk()
        self._vfs = vfs
        self._elapsed_ns = elapsed_ns
        self._watchers = Watchers()
        self._now_ms = 0
        self._verifying: tuple[apsw.Connection, asyncio.Future[str | None]] | None = None
        self._opened = False
        self._closing: asyncio.Task[None] | None = None

    async def open(self) -> Self:
        while self._closing is not None and not self._closing.done():
            # Callers of `close` get its result. Another task may open or close it before this one
            # continues.
            await asyncio.wait([self._closing])
        if self._opened:
            return self
        if self.inherited:
            raise self.closed_error(self.path)
        try:
            inspect_path(self.path)
            self._owner = Owner(self.path)
        except OSError as error:
            raise cannot_open(self.path, error) from error
        try:
            self._open_files()
        except BaseException:
            self._owner.release()
            raise
        self._opened = True
        forks.watch(self)
        return self

    def forked(self) -> None:
        if self._opened:
            self._opened = False
            super().forked()

    @property
    def incarnation(self) -> Incarnation:
        """The incarnation of a SQLite database is its ID; a backup has a new one."""
        return Incarnation(self._table.database_id.hex())

    def _open_files(self) -> None:
        self._must_not_be_emptied()
        table = Table(self.path, random_bytes(16), self._cache_bytes, self._vfs)
        table.on_damaged = self.alarms.damaged
        try:
            self._layers = Layers(table, self._cache_bytes)
            self._journal = Journal(self.path, table.database_id, self._disk, random_bytes)
            if table.meta.journal and not segment_paths(f"{self.path}-log."):
                raise journal_missing(self.path)
            last_seq = self._replay(table.folded_seq)
            if last_seq < table.meta.durable_seq:
                raise journal_missing(self.path)
            self._make_table_durable()
            self._journal.start()
            with explained(self.path):
                table.note_journal(True)
            self._owner.remember(table.database_id)
        except OSError as error:
            table.close()
            raise cannot_open(self.path, error) from error
        except BaseException:
            table.close()
            raise
        self._table = table
        self._background = ThreadPoolExecutor(3, thread_name_prefix="onceward-sqlite")
        self._writer = Writer(self._journal, last_seq, self._background, self._elapsed_ns)
        self._folder = Folder(
            self._layers,
            self._writer,
            self._journal,
            table,
            self._background,
            lambda: self._now_ms,
            calm_bytes=self._fold_bytes // 2,
        )
        self._writer.segment_filled = self._folder.ask
        self._writer.segment_made = self._report_segment
        if last_seq > table.folded_seq:
            self._folder.ask(everything=True)

    def _report_segment(self, error: OSError | None) -> None:
        """Raise an alarm while no journal segment can be created in advance."""
        if error is None:
            self.alarms.clear(NO_SEGMENT)
        else:
            self.alarms.raise_(
                NO_SEGMENT,
                f"cannot create a journal segment ({error.strerror}). Commits are rejected when "
                "the current one is full. Free disk space, or raise the limit of open files.",
            )

    def _must_not_be_emptied(self) -> None:
        """Reject a missing or empty file if a journal or owner file shows that it held a
        database."""
        there = os.path.exists(self.path)
        if there and os.path.getsize(self.path) > 0:
            return
        if segment_paths(f"{self.path}-log."):
            raise CannotOpen(
                f"{self.path} is missing, but its journal exists. Restore the file, or move "
                f"{self.path}-log.* away to start with an empty database.",
                code="damaged",
            )
        if there and self._owner.database and not os.path.exists(f"{self.path}-journal"):
            raise CannotOpen(
                f"{self.path} is empty, but it held the database {self._owner.database}. Restore "
                "a backup, or remove the file to start with an empty database.",
                code="damaged",
            )

    @property
    def verified(self) -> bool:
        return self._table.pages_verified

    async def verify(self) -> None:
        """Check the pages of the file in a separate thread, during which reads and commits
        continue.

        Raises `CannotOpen` (damaged) if SQLite finds a damaged page.
        """
        self._must_work()
        with explained(self.path):
            connection = connect(self.path, vfs=self._vfs)
            try:
                run = asyncio.get_running_loop().run_in_executor
                self._verifying = connection, run(None, page_problem, connection)
                problem = await asyncio.shield(self._verifying[1])
            except apsw.InterruptError:
                return
            finally:
                await self._end_verifying()
        if problem is not None:
            raise damaged_pages(self.path, problem)
        self._table.pages_verified = True

    async def _end_verifying(self) -> None:
        """Interrupt the verification if it is running: the last connection to close checkpoints the
        file.
        """
        if self._verifying is not None:
            (connection, work), self._verifying = self._verifying, None
            connection.interrupt()
            await asyncio.wait([work])
            connection.close()

    def _make_table_durable(self) -> None:
        """Sync SQLite's log: a killed process may have left a fold in the system's cache, and the
        journal of folded commits is removed next.
        """
        if os.path.exists(log := f"{self.path}-wal"):
            fd = self._disk.open(log)
            try:
                self._disk.sync_all(fd)
            finally:
                self._disk.close(fd)
        self._disk.sync_directory(self.path)

    def _replay(self, folded_seq: int) -> int:
        last_seq = folded_seq
        put = self._layers.active.put
        # Scanning hundreds of thousands of new objects for garbage would take a third of the time.
        collected = gc.isenabled()
        gc.disable()
        try:
            for frame in self._journal.recover(folded_seq):
                for rows in frame.commits:
                    for row in rows:
                        put(row)
                last_seq = frame.last_seq
        finally:
            if collected:
                gc.enable()
        return last_seq

    async def close(self) -> None:
        if self._opened:
            self._opened = False
            self._closing = asyncio.create_task(self._close(), name="onceward-close")
        if self._closing is not None:
            # Continues if this caller is cancelled: a partly closed engine would be unusable.
            await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            await self._end_verifying()
            await self._folder.close()
            await self._writer.close()
            folded = self._writer.failure is None and await self._folder.fold_all()
            if folded and self._let_go_of_journal():
                self._journal.close(remove=True)
        finally:
            self._background.shutdown()
            self._journal.close(remove=False)
            self._table.close()
            self._owner.release()

    def _let_go_of_journal(self) -> bool:
        """Record that the table is complete; if that fails, return False and keep the journal."""
        try:
            self._table.note_journal(False)
        except (StorageFull, apsw.Error, OSError):
            return False
        return True

    async def get(self, keys: Sequence[Key], now_ms: int) -> list[Record | None]:
        if not self._opened or self._writer.failure is not None:
            self._must_work()
        if len(keys) > limits.GET_KEYS_MAX:
            raise too_many_keys(len(keys))
        current = self._layers.current
        return [current(key, now_ms) for key in keys]

    async def scan(
        self,
        partition: str,
        now_ms: int,
        *,
        start: str = "",
        end: str | None = None,
        limit: int = limits.SCAN_RECORDS_DEFAULT,
        reverse: bool = False,
        skip_damaged: bool = False,
    ) -> list[Record]:
        self._must_work()
        admit_scan(limit)
        return self._layers.range(partition, start, end, reverse, now_ms, limit, skip_damaged)

    async def commit(
        self,
        writes: Sequence[Write],
        now_ms: int,
        visible: Callable[[Version], None] | None = None,
    ) -> Version:
        if not self._opened or self._writer.failure is not None:
            self._must_work()
        size_bytes = admit(writes) + len(writes) * ROW_OVERHEAD_BYTES
        writer, layers = self._writer, self._layers
        eased = layers.active.size_bytes + layers.frozen.size_bytes > self._ease_bytes
        full = writer.batch_bytes + size_bytes > writer.room_bytes
        if (eased or full) and _changes(writes):
            await self.make_room(size_bytes)
        nowhere = layers.judge(writes, now_ms)
        seq = writer.seq + 1
        rows = layers.apply(writes, seq, nowhere)
        if rows:
            durable = writer.append(rows, size_bytes)
            watched = self._watchers.by_partition
            if not watched.keys().isdisjoint([write.key[0] for write in writes]):
                self._watchers.hint(writes)
            if layers.active.size_bytes > self._fold_bytes:
                self._folder.ask(everything=True)
            elif self._folder.idle:
                self._folder.ask()
        elif writer.durable_seq == writer.seq:
            if visible:
                visible(writer.seq)
            return writer.seq
        else:
            seq = writer.seq
            durable = writer.synced()
        if now_ms > self._now_ms:
            self._now_ms = now_ms
        if visible:
            visible(seq)
        if writer.turn_is_over:
            await asyncio.sleep(0)  # yields to other tasks even if the disk is fast
        await durable
        return seq

    async def make_room(self, size_bytes: int) -> None:
        self._must_work()
        if self._layers.size_bytes > self._ease_bytes:
            await self._ease()
        if self._writer.batch_bytes + size_bytes > self._writer.room_bytes:
            await self._writer.make_room(size_bytes)
            self._must_work()

    def watch(self, partition: str) -> Watch:
        return self._watchers.add(partition)

    async def sweep(self, now_ms: int, limit: int = limits.SWEEP_RECORDS_MAX) -> int:
        self._must_work()
        expired = await self._expired_in_table(now_ms, limit)
        if len(expired) < limit:
            in_memory = await self._expired_in_memory(now_ms, limit - len(expired))
            expired = list(dict.fromkeys([*expired, *in_memory]))
        swept = 0
        for start in range(0, len(expired), limits.COMMIT_WRITES_MAX):
            piece = expired[start : start + limits.COMMIT_WRITES_MAX]
            swept += await self._remove_expired(piece, now_ms)
        return swept

    async def _expired_in_table(self, now_ms: int, limit: int) -> list[Key]:
        """Keys of expired records in the table. Yields to other tasks."""
        found: list[Key] = []
        # From the end of the last sweep to the end of the table, then from the start if nothing was
        # found.
        for _ in range(1 if self._layers.swept is None else 2):
            while len(found) < limit:
                page = self._layers.expired(now_ms, limit - len(found))
                if page is None:
                    break
                found += page
                await self._give_way()
            if found:
                break
        return found

    async def _expired_in_memory(self, now_ms: int, limit: int) -> list[Key]:
        """Keys of expired records in memory. Yields to other tasks."""
        found: list[Key] = []
        visited = 0
        for rows in self._layers.copies():
            for row in rows:
                if row.absent_at(now_ms) and self._layers.in_memory(row.key) is row:
                    found.append(row.key)
            if len(found) >= limit:
                break
            visited += len(rows)
            if visited >= ROWS_AT_ONCE:
                visited = 0
                await self._give_way()
        return found[:limit]

    async def _give_way(self) -> None:
        """Yield to other tasks during a long operation."""
        await asyncio.sleep(0)
        self._must_work()

    async def _remove_expired(self, keys: list[Key], now_ms: int) -> int:
        """Delete the records of these keys that are still expired; other tasks may have renewed
        some.
        """
        while keys:
            try:
                await self.commit([Delete(key, ABSENT) for key in keys], now_ms)
                break
            except Conflict as conflict:
                renewed = conflict.details["keys"]
                keys = [key for key in keys if key not in renewed]  # type: ignore[operator]
        return len(keys)

    async def _ease(self) -> None:
        """Delay commits gradually as the memtable fills up, so that folding keeps pace."""
        fill = self._layers.size_bytes / self._memtable_bytes
        part = (fill - _EASE_FROM) / (1 - _EASE_FROM)
        await asyncio.sleep(min(part * part, 1) * _EASE_PAUSE_S_MAX)
        self._must_work()
        while self._layers.size_bytes > self._memtable_bytes * 2:
            if self._folder.full is not None:
                raise StorageFull(
                    f"not enough disk space for {self.path}, and the memory for pending records "
                    "is full. This commit was not applied. Free disk space."
                )
            self._folder.ask(everything=True)
            await self._folder.progress()
            self._must_work()

    def _must_work(self) -> None:
        if not self._opened:
            raise self.closed_error(self.path)
        if self._writer.failure is not None:
            # Without the tracebacks of earlier callers.
            raise self._writer.failure.with_traceback(None)


def _changes(writes: Sequence[Write]) -> bool:
    """Whether there are writes; checks need no space."""
    return any(type(write) is not Check for write in writes)


def cannot_open(path: str, error: OSError) -> CannotOpen:
    """The error for a system error during opening."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CannotOpen(
            f"not enough disk space to open {path}. Free disk space and try again.",
            code="storage_full",
        )
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return CannotOpen(
            f"no permission to write {path} or its journal: {error.strerror}. Change their "
            "permissions.",
            code="read_only",
        )
    return CannotOpen(
        f"cannot open {path}: {error}. Check the disk and the permissions.", code="storage_failed"
    )
