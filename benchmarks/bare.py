"""Limits of the disk without any engine, as a baseline for the others."""

import mmap
import os
import random
import shutil
import time

from benchmarks.measure import summary
from onceward.engine.sqlite.disk import Disk, aligned

FILE_BYTES = 64 << 20
# The amount that a fold writes at a time if every row is on a different page.
_PAGES = 4_000
_PAGE_BYTES = 4_096
_LOG_PIECE_BYTES = 4 << 20


def stalls(folder: str, table: str, seconds: float) -> dict[str, float]:
    """The longest stall of durable journal writes while another process writes like a fold: a log
    in large pieces, then pages all over a table."""
    copy = os.path.join(folder, "bare.table")
    shutil.copyfile(table, copy)
    os.sync()
    until = time.perf_counter() + seconds
    child = os.fork()
    if child == 0:
        try:
            _fold(copy, os.path.join(folder, "bare.log"), until)
        finally:
            os._exit(0)
    disk = Disk()
    path = os.path.join(folder, "bare")
    fd = disk.create(path, FILE_BYTES, b"")
    frame = aligned(bytes(32 << 10))
    disk.bypass_cache(fd, mmap.PAGESIZE)
    took: list[int] = []
    while time.perf_counter() < until:
        start_ns = time.perf_counter_ns()
        disk.write_durably(fd, frame, len(took) * len(frame) % FILE_BYTES)
        took.append(time.perf_counter_ns() - start_ns)
        time.sleep(0.002)
    os.close(fd)
    os.waitpid(child, 0)
    for name in ("bare", "bare.table", "bare.log"):
        os.unlink(os.path.join(folder, name))
    return summary(took, sum(took))


def _fold(table: str, log: str, until: float) -> None:
    pages = os.path.getsize(table) // _PAGE_BYTES
    table_fd = os.open(table, os.O_RDWR)
    log_fd = Disk().create(log, FILE_BYTES, b"")
    piece, page, dice = os.urandom(_LOG_PIECE_BYTES), os.urandom(_PAGE_BYTES), random.Random(1)
    while time.perf_counter() < until:
        for offset in range(0, _PAGES * _PAGE_BYTES, _LOG_PIECE_BYTES):
            os.pwrite(log_fd, piece, offset)
            os.fdatasync(log_fd)
        for number in sorted(dice.sample(range(pages), _PAGES)):
            os.pwrite(table_fd, page, number * _PAGE_BYTES)
        os.fdatasync(table_fd)


class TimedDisk(Disk):
    """Records the duration of the longest durable write."""

    longest_s = 0.0

    def write_durably(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        start = time.perf_counter()
        super().write_durably(fd, data, offset)
        self.longest_s = max(self.longest_s, time.perf_counter() - start)
