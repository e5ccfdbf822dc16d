import asyncio
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from onceward.engine.sqlite import SQLiteEngine, reader
from onceward.engine.sqlite.frames import damaged
from onceward.engine.sqlite.journal import read_segment, segment_paths
from onceward.engine.sqlite.reader import Snapshot, read
from onceward.engine.sqlite.table import FORMAT
from onceward.errors import CannotOpen, Contention, OncewardError
from tests.bank import Bank, audit
from tests.databases import (
    alter,
    closed,
    commit,
    corrupt,
    crashed,
    everything,
    once,
    running,
    segments,
    values,
)

FOLDED = [{("p", "a"): b"1", ("p", "c"): b"3", ("p", "e"): b"5"}, {("q", "a"): b"7"}]
UNFOLDED = [
    {("p", "b"): b"2", ("p", "c"): None},
    {("p", "d"): b"4", ("p", "e"): b"6"},
    {("p", "d"): None, ("p", "f"): b"8"},
]
EXPECTED = {
    ("p", "a"): b"1",
    ("p", "b"): b"2",
    ("p", "e"): b"6",
    ("p", "f"): b"8",
    ("q", "a"): b"7",
}


def look(path: Path) -> dict[tuple[str, str], bytes]:
    return read(str(path), lambda snapshot: values(everything(snapshot)))


def refused(path: Path) -> OncewardError:
    with pytest.raises(CannotOpen) as caught:
        look(path)
    return caught.value


def fingerprints(folder: Path) -> dict[str, str]:
    """All but what SQLite keeps its locks in."""
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.iterdir()
        if file.is_file() and not file.name.endswith("-shm")
    }


async def test_a_closed_database_is_read_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED, *UNFOLDED)
    before = fingerprints(tmp_path)
    assert look(path) == EXPECTED
    assert fingerprints(tmp_path) == before
    assert {file.name for file in tmp_path.iterdir()} == {"a.db", "a.db-owner"}


async def test_the_journal_of_a_crashed_database_counts_and_stays(tmp_path: Path) -> None:
    path = await crashed(tmp_path / "a.db", FOLDED, UNFOLDED)
    before = fingerprints(tmp_path)
    snapshot = read(str(path), lambda snapshot: snapshot)
    assert (snapshot.folded_seq, snapshot.last_seq) == (2, 5)
    assert look(path) == EXPECTED
    assert fingerprints(tmp_path) == before


async def test_a_running_database_shows_what_is_not_folded_yet(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with running(path, FOLDED, UNFOLDED) as engine:
        assert look(path) == EXPECTED
        await commit(engine, {("p", "a"): None})
        assert ("p", "a") not in look(path)


async def test_a_snapshot_answers_for_single_keys(tmp_path: Path) -> None:
    path = await crashed(tmp_path / "a.db", FOLDED, UNFOLDED)

    def work(snapshot: Snapshot) -> list[bytes | None]:
        found = [snapshot.get(("p", sort)) for sort in "abcx"]
        return [record and record.value for record in found]

    assert read(str(path), work) == [b"1", b"2", None, None]


async def test_a_link_leads_to_the_journal_too(tmp_path: Path) -> None:
    path = await crashed(tmp_path / "a.db", FOLDED, UNFOLDED)
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)
    assert look(link) == EXPECTED


async def test_a_name_with_signs_that_mean_something_in_a_url(tmp_path: Path) -> None:
    path = await closed(tmp_path / "a?b#c%41.db", *FOLDED, *UNFOLDED)
    assert look(path) == EXPECTED


async def test_the_table_may_be_folded_up_to_the_middle_of_a_frame(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with SQLiteEngine(str(path)) as engine:
        await asyncio.gather(*(commit(engine, {("p", str(n)): b"%d" % n}) for n in range(1, 6)))
        snapshot = read(str(path), lambda snapshot: snapshot)
        [frame] = snapshot.frames
        assert (frame.first_seq, frame.last_seq) == (1, 5)
        alter(path, "UPDATE meta SET value = '3' WHERE name = 'folded_seq'")
        snapshot = read(str(path), lambda snapshot: snapshot)
        assert set(snapshot.rows) == {("p", "4"), ("p", "5")}


def test_every_look_at_a_busy_database_finds_one_consistent_state(tmp_path: Path) -> None:
    path = tmp_path / "bank.db"
    with Bank(path) as bank:
        for _ in range(10):
            acknowledged = bank.work(100)
            audit(read(str(path), everything), acknowledged)
        acknowledged = bank.kill()
        audit(read(str(path), everything), acknowledged)


def test_a_look_that_comes_too_late_for_the_journal_starts_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bank.db"
    with Bank(path) as bank:
        acknowledged = bank.work(100)
        # Far more than the segments hold before they are used again.
        monkeypatch.setattr(reader, "segment_paths", once(lambda: bank.work(2_000), segment_paths))
        audit(read(str(path), everything), acknowledged)


async def test_a_fold_that_empties_the_journal_in_between_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await crashed(tmp_path / "a.db", FOLDED, UNFOLDED)

    def fold() -> None:
        # What a fold does last: all is in the table, and the journal is gone.
        script = "\n".join(
            (
                "import asyncio, sys",
                "from onceward.engine.sqlite import SQLiteEngine",
                "async def main():",
                "    async with SQLiteEngine(sys.argv[1]):",
                "        pass",
                "asyncio.run(main())",
            )
        )
        subprocess.run([sys.executable, "-c", script, str(path)], check=True)
        assert not segments(path)

    monkeypatch.setattr(reader, "segment_paths", once(fold, segment_paths))
    assert look(path) == EXPECTED


@pytest.mark.parametrize("error", [FileNotFoundError(), damaged("a.db-log.00000001", "torn")])
async def test_a_segment_that_changes_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail() -> None:
        raise error

    path = tmp_path / "a.db"
    async with running(path, FOLDED, UNFOLDED):
        monkeypatch.setattr(reader, "read_segment", once(fail, read_segment))
        assert look(path) == EXPECTED


async def test_a_segment_that_is_used_again_before_it_is_read_is_not_taken_for_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    async with running(path, FOLDED, UNFOLDED):
        # What the reader has listed under the old name has another number by now.
        real = segments(path)[0]
        stale = Path(f"{path}-log.00000000")
        stale.hardlink_to(real)
        monkeypatch.setattr(reader, "segment_paths", _unlinking(stale))
        assert look(path) == EXPECTED
        assert not stale.exists()


def _unlinking(stale: Path) -> Callable[[str], list[str]]:
    """The names in the folder; the stale one is gone after the first look."""
    found: list[str] = []

    def paths(prefix: str) -> list[str]:
        if found and stale.exists():
            stale.unlink()
        found[:] = segment_paths(prefix)
        return list(found)

    return paths


async def test_a_look_gives_up_when_the_owner_is_quicker_every_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanished(*_: object) -> None:
        raise FileNotFoundError

    path = await crashed(tmp_path / "a.db", FOLDED, UNFOLDED)
    monkeypatch.setattr(reader, "read_segment", vanished)
    with pytest.raises(Contention, match="changes faster"):
        look(path)


async def test_damage_is_damage_also_when_the_database_is_running(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with running(path, FOLDED, UNFOLDED):
        corrupt(segments(path)[0], b"\xa1b", b"\xa1x")
        assert refused(path).code == "damaged"


async def test_a_still_database_that_someone_opens_meanwhile_is_read_again(tmp_path: Path) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)
    seen = []

    def work(snapshot: Snapshot) -> int:
        seen.append(snapshot.last_seq)
        if len(seen) == 1:
            alter(path, "UPDATE meta SET value = '9' WHERE name = 'folded_seq'")
        return snapshot.last_seq

    assert read(str(path), work) == 9
    assert seen == [2, 9]


async def test_what_fails_because_the_file_changed_under_it_is_done_again(tmp_path: Path) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)
    tries = []

    def work(snapshot: Snapshot) -> str:
        tries.append(snapshot)
        if len(tries) == 1:
            alter(path, "UPDATE meta SET value = '9' WHERE name = 'folded_seq'")
            raise apsw.CorruptError("pages of two states")
        return "done"

    assert read(str(path), work) == "done"


async def test_an_error_of_the_work_itself_is_passed_on(tmp_path: Path) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)

    def work(snapshot: Snapshot) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        read(str(path), work)


async def test_a_file_that_goes_away_meanwhile_is_reported_as_gone(tmp_path: Path) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)
    with pytest.raises(CannotOpen, match="was removed during the read"):
        read(str(path), lambda snapshot: path.unlink())


def _missing(path: Path) -> None:
    pass


def _directory(path: Path) -> None:
    path.mkdir()


def _text(path: Path) -> None:
    path.write_text("Dear diary,\n" * 100)


def _empty(path: Path) -> None:
    path.touch()


def _foreign(path: Path) -> None:
    alter(path, "CREATE TABLE song (title)")


def _newer(path: Path) -> None:
    alter(path, "PRAGMA application_id = 0x4F4E4345")
    alter(path, "PRAGMA user_version = 99")


def _without_meta(path: Path) -> None:
    _newer(path)
    alter(path, f"PRAGMA user_version = {FORMAT}")


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (_missing, "no_such_file", "does not exist"),
        (_directory, "is_a_directory", "is a directory"),
        (_text, "not_a_database", "not a database"),
        (_empty, "not_a_database", "is empty"),
        (_foreign, "not_a_database", "but not Onceward's"),
        (_newer, "unsupported_format", "format 99"),
        (_without_meta, "damaged", "meta"),
    ],
)
def test_what_is_no_database_is_refused_in_its_own_words(
    tmp_path: Path, make: Callable[[Path], None], code: str, words: str
) -> None:
    make(tmp_path / "a.db")
    error = refused(tmp_path / "a.db")
    assert error.code == code
    assert words in error.message


async def test_a_file_cut_off_is_damaged(tmp_path: Path) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)
    os.truncate(path, 5_000)
    assert refused(path).code == "damaged"


async def test_text_that_is_no_text_is_damage(tmp_path: Path) -> None:
    path = await closed(tmp_path / "a.db", {("p", "a"): b'"plain"'})
    corrupt(path, b'"plain"', b'"pl\xffin"')
    error = refused(path)
    assert error.code == "damaged"
    assert "UTF-8" in error.message


async def test_damage_in_the_middle_of_the_journal_is_not_read_around(tmp_path: Path) -> None:
    path = await crashed(tmp_path / "a.db", FOLDED, UNFOLDED)
    corrupt(segments(path)[0], b"\xa1b", b"\xa1x")
    error = refused(path)
    assert error.code == "damaged"
    assert "valid frames follow" in error.message
    problems = read(str(path), lambda snapshot: snapshot.problems, lenient=True)
    assert len(problems) == 1


async def test_the_torn_end_of_a_crashed_journal_is_no_damage(tmp_path: Path) -> None:
    path = await crashed(tmp_path / "a.db", FOLDED, UNFOLDED)
    corrupt(segments(path)[0], b"\xa1f", b"\xa1x")
    found = look(path)
    assert found.pop(("p", "d")) == b"4"
    assert found == {key: value for key, value in EXPECTED.items() if key != ("p", "f")}


async def test_a_missing_segment_leaves_a_gap_that_is_damage(tmp_path: Path) -> None:
    path = await crashed(tmp_path / "a.db", FOLDED, UNFOLDED)
    alter(path, "UPDATE meta SET value = '1' WHERE name = 'folded_seq'")
    error = refused(path)
    assert error.code == "damaged"
    assert "commit 3 comes after 1" in error.message
