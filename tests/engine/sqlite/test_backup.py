import errno
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

import apsw
import pytest

from onceward import limits
from onceward.engine.sqlite import SQLiteEngine, backup
from onceward.engine.sqlite.backup import back_up
from onceward.engine.sqlite.check import check
from onceward.engine.sqlite.disk import Disk
from onceward.engine.sqlite.reader import read
from onceward.errors import CannotOpen, OncewardError
from onceward.testing.disk import Observer, Operation, WatchedDisk
from tests.bank import Bank, audit
from tests.databases import (
    Contents,
    alter,
    closed,
    commit,
    corrupt,
    crashed,
    everything,
    running,
    segments,
)

FOLDED: list[Contents] = [{("p", "a"): b"1", ("p", "b"): b"2"}, {("p", "c"): b"3"}]
UNFOLDED: list[Contents] = [{("p", "a"): b"11", ("p", "d"): b"4"}, {("p", "b"): None}]
LARGE: list[Contents] = [
    {("p", f"{piece}-{number}"): b'"%s"' % (b"x" * 30_000) for number in range(50)}
    for piece in range(2)
]


def refused(path: Path, to: Path, **options: bool) -> OncewardError:
    before = sorted(to.parent.iterdir()) if to.parent.exists() else []
    with pytest.raises(OncewardError) as caught:
        back_up(str(path), str(to), **options)
    assert (sorted(to.parent.iterdir()) if to.parent.exists() else []) == before
    return caught.value


@pytest.fixture
def to(tmp_path: Path) -> Path:
    (tmp_path / "backups").mkdir()
    return tmp_path / "backups" / "copy.db"


async def test_a_copy_has_what_is_in_the_table_and_in_the_journal(tmp_path: Path, to: Path) -> None:
    path = tmp_path / "a.db"
    async with running(path, FOLDED, UNFOLDED):
        copy = back_up(str(path), str(to))
        expected = read(str(path), everything)
    assert (copy.records, copy.last_seq, copy.bytes) == (3, 4, to.stat().st_size)
    assert os.listdir(to.parent) == ["copy.db"]
    assert read(str(to), everything) == expected
    assert check(str(to)).problems == []


async def test_a_copy_opens_and_goes_on_where_the_original_was(tmp_path: Path, to: Path) -> None:
    path = await crashed(tmp_path / "a.db", FOLDED, UNFOLDED)
    back_up(str(path), str(to))
    async with SQLiteEngine(str(to)) as engine:
        found = await engine.scan("p", 0)
        assert [(record.key[1], record.value) for record in found] == [
            ("a", b"11"),
            ("c", b"3"),
            ("d", b"4"),
        ]
        assert await commit(engine, {("p", "e"): b"5"}) == 5


async def test_a_copy_is_another_incarnation_and_stays_it(tmp_path: Path, to: Path) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)
    back_up(str(path), str(to))
    found = []
    for file in (path, to, path, to):
        async with SQLiteEngine(str(file)) as engine:
            found.append(engine.incarnation)
    assert found[:2] == found[2:]
    assert found[0] != found[1]


async def test_a_copy_does_not_take_the_journal_of_the_original_for_its_own(
    tmp_path: Path, to: Path
) -> None:
    path = await crashed(tmp_path / "a.db", FOLDED, UNFOLDED)
    back_up(str(path), str(to))
    for segment in segments(path):
        segment.rename(to.parent / segment.name.replace("a.db", "copy.db"))
    with pytest.raises(CannotOpen, match="belongs to another database"):
        await SQLiteEngine(str(to)).open()


async def test_a_copy_is_as_secret_as_the_original(tmp_path: Path, to: Path) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)
    path.chmod(0o600)
    back_up(str(path), str(to))
    assert to.stat().st_mode & 0o777 == 0o600


async def test_an_original_that_may_only_be_read_gives_a_copy_that_opens(
    tmp_path: Path, to: Path
) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)
    path.chmod(0o444)
    back_up(str(path), str(to))
    async with SQLiteEngine(str(to)) as engine:
        assert len(await engine.scan("p", 0)) == 3


def test_a_backup_of_a_busy_database_is_one_consistent_state(tmp_path: Path, to: Path) -> None:
    path = tmp_path / "bank.db"
    with Bank(path) as bank:
        for number in range(5):
            acknowledged = bank.work(100)
            back_up(str(path), f"{to}.{number}")
            bank.work(1)
            audit(read(f"{to}.{number}", everything), acknowledged)
        bank.close()


def test_folds_meanwhile_neither_show_in_the_copy_nor_make_it_start_over(
    tmp_path: Path, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BACKUP_STEP_PAGES", 4)
    path = tmp_path / "bank.db"
    seen: list[tuple[int, int]] = []
    with Bank(path) as bank:
        bank.work(1_000)

        def fold_on() -> None:
            """Wait until all that is committed now is folded."""
            last_seq = read(str(path), lambda snapshot: snapshot.last_seq)
            while read(str(path), lambda snapshot: snapshot.folded_seq) < last_seq:
                bank.work(50)

        def progress(what: str, done: int, total: int | None) -> None:
            if what == "copying pages" and total is not None:
                seen.append((done, total))
                if len(seen) in (1, 5):
                    fold_on()

        fold_on()
        back_up(str(path), str(to), progress=progress)
        acknowledged = bank.kill()
    transfers = audit(read(str(to), everything), set())
    assert transfers < len(acknowledged)
    assert len(seen) >= 5
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert len({total for _, total in seen}) == 1


async def test_a_still_database_that_changes_meanwhile_is_copied_again(
    tmp_path: Path, to: Path
) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)
    waiting = [lambda: alter(path, "UPDATE meta SET value = '9' WHERE name = 'folded_seq'")]

    def progress(what: str, done: int, total: int | None) -> None:
        if what == "counting" and waiting:
            waiting.pop()()

    assert back_up(str(path), str(to), progress=progress).last_seq == 9
    assert os.listdir(to.parent) == ["copy.db"]


async def test_an_existing_target_is_not_touched(tmp_path: Path, to: Path) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)
    to.write_text("precious")
    error = refused(path, to)
    assert error.code == "file_exists"
    assert "--force" in error.message
    assert to.read_text() == "precious"


async def test_a_target_that_appears_meanwhile_is_not_touched(tmp_path: Path, to: Path) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)

    def progress(what: str, done: int, total: int | None) -> None:
        to.write_text("precious")

    with pytest.raises(CannotOpen, match="exists already"):
        back_up(str(path), str(to), progress=progress)
    assert to.read_text() == "precious"
    assert os.listdir(to.parent) == ["copy.db"]


async def test_force_replaces_a_database_and_its_logs(tmp_path: Path, to: Path) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)
    (tmp_path / "old").mkdir()
    old = await crashed(
        tmp_path / "old" / "copy.db", [{("old", "a"): b"1"}], [{("old", "b"): b"2"}]
    )
    for file in old.parent.glob("copy.db*"):
        file.rename(to.parent / file.name)
    assert refused(path, to).code == "file_exists"
    back_up(str(path), str(to), force=True)
    assert sorted(os.listdir(to.parent)) == ["copy.db", "copy.db-owner"]
    async with SQLiteEngine(str(to)) as engine:
        assert len(await engine.scan("p", 0)) == 3
        assert await engine.scan("old", 0) == []


class Interrupted(Observer):
    """Fails one operation, or is interrupted before or after it."""

    def __init__(self, number: int, how: str) -> None:
        self.number = number
        self.how = how
        self.seen: list[str] = []

    def before(self, operation: Operation) -> int | None:
        self.seen.append(operation.kind)
        if len(self.seen) == self.number:
            if self.how == "fails":
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            if self.how == "before":
                raise KeyboardInterrupt
        return None

    def after(self, operation: Operation) -> None:
        if len(self.seen) == self.number and self.how == "after":
            raise KeyboardInterrupt


@pytest.mark.parametrize("how", ["fails", "before", "after"])
async def test_whatever_happens_a_target_to_be_replaced_is_as_it_was_or_the_copy(
    how: str, tmp_path: Path, to: Path
) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)
    (tmp_path / "old").mkdir()
    old = await crashed(tmp_path / "old" / "copy.db", [{("p", "old"): b"1"}], UNFOLDED)
    Path(f"{old}-owner").unlink()
    before = {file.name: file.read_bytes() for file in old.parent.glob("copy.db*")}
    assert len(before) >= 3
    outcomes: list[str] = []
    for number in count(1):
        for file in to.parent.iterdir():
            file.unlink()
        for name, content in before.items():
            (to.parent / name).write_bytes(content)
        observer = Interrupted(number, how)
        try:
            back_up(str(path), str(to), force=True, disk=WatchedDisk(observer))
            break
        except (CannotOpen, KeyboardInterrupt):
            files = {file.name: file.read_bytes() for file in to.parent.iterdir()}
            beside = [name for name in files if "-replaced-" not in name]
            if files == before:
                outcomes.append("as it was")
            else:
                assert beside == ["copy.db"], observer.seen[-1]
                assert len(read(str(to), everything)) == 3
                outcomes.append("the copy")
    assert set(outcomes) == {"as it was", "the copy"}
    assert outcomes == sorted(outcomes)
    assert os.listdir(to.parent) == ["copy.db"]


async def test_logs_without_their_file_are_not_given_to_a_copy(tmp_path: Path, to: Path) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)
    Path(f"{to}-log.00000001").touch()
    error = refused(path, to)
    assert error.code == "file_exists"
    assert "copy.db-log.00000001" in error.message
    back_up(str(path), str(to), force=True)
    assert os.listdir(to.parent) == ["copy.db"]


async def test_force_does_not_replace_what_a_process_is_using(tmp_path: Path, to: Path) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)
    async with SQLiteEngine(str(to)) as engine:
        with pytest.raises(CannotOpen) as caught:
            back_up(str(path), str(to), force=True)
        assert caught.value.code == "database_in_use"
        assert f"process {os.getpid()}" in caught.value.message
        await commit(engine, {("still", "there"): b"1"})


def _itself(path: Path) -> Path:
    return path


def _linked(path: Path) -> Path:
    link = path.parent / "link.db"
    link.symlink_to(path)
    return link


def _folder(path: Path) -> Path:
    return path.parent


def _no_folder(path: Path) -> Path:
    return path.parent / "missing" / "copy.db"


def _pipe(path: Path) -> Path:
    os.mkfifo(path.parent / "pipe")
    return path.parent / "pipe"


@pytest.mark.parametrize(
    ("target", "code"),
    [
        (_itself, "bad_request"),
        (_linked, "bad_request"),
        (_folder, "is_a_directory"),
        (_no_folder, "no_such_file"),
        (_pipe, "file_exists"),
    ],
)
async def test_targets_that_cannot_be_are_refused(
    tmp_path: Path, target: Callable[[Path], Path], code: str
) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)
    assert refused(path, target(path), force=True).code == code


async def test_a_missing_original_is_missing(tmp_path: Path, to: Path) -> None:
    assert refused(tmp_path / "a.db", to).code == "no_such_file"


async def test_a_damaged_original_is_damaged(tmp_path: Path, to: Path) -> None:
    path = await crashed(tmp_path / "a.db", FOLDED, UNFOLDED)
    corrupt(segments(path)[0], b"\xa1d", b"\xa1x")
    assert refused(path, to).code == "damaged"


async def test_an_original_cut_off_is_damaged(tmp_path: Path, to: Path) -> None:
    path = await closed(tmp_path / "a.db", *LARGE)
    os.truncate(path, path.stat().st_size // 2)
    assert refused(path, to).code == "damaged"


class FailingDisk(Disk):
    def __init__(self, method: str, error: OSError) -> None:
        self._error = error
        setattr(self, method, self._fail)

    def _fail(self, *_: object) -> None:
        raise self._error


@pytest.mark.parametrize("method", ["sync_all", "rename"])
@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "storage_full"),
        (errno.EDQUOT, "storage_full"),
        (errno.EROFS, "read_only"),
        (errno.EIO, "storage_failed"),
    ],
)
async def test_what_fails_at_the_end_leaves_nothing_behind(
    tmp_path: Path, to: Path, method: str, number: int, code: str
) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)
    disk = FailingDisk(method, OSError(number, os.strerror(number)))
    with pytest.raises(OncewardError) as caught:
        back_up(str(path), str(to), disk=disk)
    assert caught.value.code == code
    assert os.listdir(to.parent) == []


@pytest.mark.parametrize(("spare_pages", "stage"), [(-9, None), (2, "adding the journal")])
async def test_a_full_disk_leaves_nothing_behind(
    tmp_path: Path, to: Path, monkeypatch: pytest.MonkeyPatch, spare_pages: int, stage: str | None
) -> None:
    path = await crashed(tmp_path / "a.db", LARGE, [{("p", "new"): LARGE[0]["p", "0-0"]}])
    pages = int(read(str(path), lambda snapshot: snapshot.connection.pragma("page_count")))
    stages = [None]

    def connect(path: str) -> apsw.Connection:
        connection = apsw.Connection(path)
        connection.execute(f"PRAGMA max_page_count = {pages + spare_pages}")
        return connection

    monkeypatch.setattr(backup, "connect", connect)
    with pytest.raises(OncewardError) as caught:
        back_up(str(path), str(to), progress=lambda what, *_: stages.append(what))
    assert caught.value.code == "storage_full"
    assert stages[-1] == stage
    assert os.listdir(to.parent) == []


async def test_a_backup_that_is_interrupted_leaves_nothing_behind(tmp_path: Path, to: Path) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)

    def progress(what: str, done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        back_up(str(path), str(to), progress=progress)
    assert os.listdir(to.parent) == []
