"""The SQLite engine keeps the contract: as it is, tiny, slow, and when the power goes."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from onceward import limits
from onceward.engine.sqlite import SQLiteEngine
from onceward.testing import certify_engine
from onceward.testing.certify import CHECKS, CheckFunction, NotApplicable, check_name, run_check
from onceward.testing.disk import Operation, Watched
from onceward.testing.power import PowerLog, Volume, restore
from tests.engine.sqlite.history import shrink

pytestmark = pytest.mark.no_cover

Factory = Callable[[], SQLiteEngine]


class Mortal(SQLiteEngine):
    """An engine whose power can be cut."""

    def __init__(self, folder: Path, files: dict[str, bytes] | None = None, **options: Any) -> None:
        self._crashes_in, self._with = folder, options
        self._lives = folder / f"{len(list(folder.iterdir()))}"
        self._lives.mkdir()
        self._log = PowerLog()
        restore(files or {}, str(self._lives))
        for name, content in (files or {}).items():
            path = str(self._lives / Path(name).name)
            self._log.entries += [
                Operation("disk.open", path, created=True),
                Operation("disk.write", path, 0, content),
                Operation("disk.sync", path, created=True),
            ]
        self._watched = Watched(self._log)
        super().__init__(
            str(self._lives / "app.db"),
            disk=self._watched.disk,
            vfs=self._watched.vfs,
            **options,
        )

    async def close(self) -> None:
        await super().close()
        self._watched.close()

    async def crash(self) -> "Mortal":
        self._watched.kill()
        volume = Volume()
        for entry in self._log.entries:
            volume.apply(entry)
        await self.close()
        return Mortal(self._crashes_in, volume.after_cut(Random(0)), **self._with)


@pytest.fixture
def paths(memory_path: Path) -> Iterator[str]:
    return (str(memory_path / f"{number}.db") for number in itertools.count())


@pytest.mark.parametrize("check", CHECKS, ids=check_name)
async def test_the_sqlite_engine_keeps_the_contract(
    check: CheckFunction, memory_path: Path
) -> None:
    try:
        await run_check(
            check,
            lambda: Mortal(memory_path),
            reopen=lambda engine: SQLiteEngine(engine.path),
            crash=lambda engine: engine.crash(),
        )
    except NotApplicable:
        assert check_name(check) == "a_change_elsewhere_gives_a_hint"


async def test_it_keeps_the_contract_when_everything_is_tiny(
    paths: Iterator[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folds, steps and checkpoints happen all the time, and the cache holds next to nothing."""
    shrink(monkeypatch)
    # A segment holds any commit, whatever its size.
    for name in ("SEGMENT_BYTES_FIRST", "SEGMENT_BYTES_MIN", "SEGMENT_BYTES_MAX"):
        monkeypatch.setattr(limits, name, 5 << 20)
    await certify(lambda: SQLiteEngine(next(paths), memtable_bytes=1_000_000, cache_bytes=2_000))


async def test_it_keeps_the_contract_on_a_slow_disk(paths: Iterator[str]) -> None:
    """Syncs seem to take a second each, so they run in a thread of their own."""
    readings = itertools.count(step=1_000_000_000)
    await certify(lambda: SQLiteEngine(next(paths), elapsed_ns=lambda: next(readings)))


async def certify(make: Factory) -> None:
    report = await certify_engine(make, reopen=lambda engine: SQLiteEngine(engine.path))
    assert len(report.passed) > 50
