import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onceward import keys, limits
from onceward.engine.base import Record
from onceward.engine.invariants import Lookup, Rule
from onceward.engine.sqlite import SQLiteEngine
from onceward.engine.sqlite import check as module
from onceward.engine.sqlite.check import check
from onceward.errors import CannotOpen
from tests.bank import Bank
from tests.databases import Contents, alter, closed, commit, corrupt, crashed, running, segments

DUE = (keys.join("due", 1), keys.join(5, "job"))
FOLDED: list[Contents] = [{("p", "a"): b'"plain"', ("p", "b"): b"2", DUE: b"{}"}]
UNFOLDED: list[Contents] = [
    {("p", "a"): b'"fresh"', ("p", "c"): b"3"},
    {("p", "b"): None},
    {("p", "d"): b'"last"'},
]


def problems(path: Path) -> list[str]:
    return check(str(path)).problems


async def test_a_closed_database_is_fine(tmp_path: Path) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED, *UNFOLDED)
    report = check(str(path))
    assert (report.problems, report.records, report.last_seq) == ([], 4, 4)


async def test_a_crashed_database_is_fine(tmp_path: Path) -> None:
    report = check(str(await crashed(tmp_path / "a.db", FOLDED, UNFOLDED)))
    assert (report.problems, report.records, report.last_seq) == ([], 4, 4)


async def test_a_running_database_is_fine(tmp_path: Path) -> None:
    async with running(tmp_path / "a.db", FOLDED, UNFOLDED):
        assert problems(tmp_path / "a.db") == []


def test_a_busy_database_is_fine_every_time(tmp_path: Path) -> None:
    path = tmp_path / "bank.db"
    with Bank(path) as bank:
        for _ in range(5):
            transfers = len(bank.work(100))
            report = check(str(path))
            assert report.problems == []
            assert report.records >= transfers
        bank.kill()
    assert problems(path) == []


async def test_a_byte_that_turns_a_value_into_no_json_is_found(tmp_path: Path) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)
    corrupt(path, b'"plain"', b'"plain ')
    problem = problems(path)[-1]
    assert problem.startswith("record p a: the value is not JSON: ")


async def test_a_byte_that_turns_a_value_into_no_text_is_found(tmp_path: Path) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)
    corrupt(path, b'"plain"', b'"pl\xffin"')
    problem = problems(path)[-1]
    assert problem.startswith("record p a: the value is not JSON: ")


async def test_a_byte_that_turns_a_key_into_no_text_is_found(tmp_path: Path) -> None:
    path = await closed(tmp_path / "a.db", {("p", "key"): b"1"})
    corrupt(path, b"pkey", b"pk\xffy")
    assert "record b'p' b'k\\xffy': the key is not UTF-8" in problems(path)


async def test_a_file_cut_off_cannot_be_read_and_is_damaged(tmp_path: Path) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)
    os.truncate(path, path.stat().st_size - 4_096)
    with pytest.raises(CannotOpen) as caught:
        check(str(path))
    assert caught.value.code == "damaged"


async def test_a_page_full_of_nothing_is_found(tmp_path: Path) -> None:
    rows: Contents = {("p", f"{number:02}"): b'"%s"' % (b"x" * 3_000) for number in range(50)}
    path = await closed(tmp_path / "a.db", rows)
    content = path.read_bytes()
    pages = [content[at : at + 4_096] for at in range(0, len(content), 4_096)]
    leaf = next(number for number, page in enumerate(pages) if page[0] == 10 and b"p10" in page)
    pages[leaf] = bytes(4_096)
    path.write_bytes(b"".join(pages))
    found = problems(path)
    assert any(problem.startswith("pages: ") for problem in found)
    assert any(problem.startswith("table: ") for problem in found)


async def _with_index_asleep(tmp_path: Path, statement: str) -> Path:
    """A database that was changed without the index taking note."""
    path = tmp_path / "a.db"
    async with SQLiteEngine(str(path)) as engine:
        await commit(engine, {("p", "a"): b"1"}, expires_at_ms=1 << 50)
        await commit(engine, {("p", "b"): b"1"})
    change = "UPDATE sqlite_schema SET sql = replace(sql, ?, ?) WHERE name = 'record_expiry'"
    alter(path, change, "IS NOT NULL", "IS NOT NULL AND 0")
    alter(path, statement)
    alter(path, change, "IS NOT NULL AND 0", "IS NOT NULL")
    return path


async def test_a_record_that_misses_in_the_index_is_found(tmp_path: Path) -> None:
    path = await _with_index_asleep(
        tmp_path, "UPDATE record SET expires_at_ms = 5 WHERE sort = 'b'"
    )
    [problem] = problems(path)
    assert problem == "pages: row 2 missing from index record_expiry"


async def test_an_index_entry_without_a_record_is_found(tmp_path: Path) -> None:
    path = await _with_index_asleep(tmp_path, "DELETE FROM record WHERE sort = 'a'")
    assert "index record_expiry: 1 entries, but 0 records expire" in problems(path)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("DROP INDEX record_expiry", "schema: record_expiry is missing"),
        ("CREATE TABLE mine (a)", "schema: mine is unexpected"),
        ("ALTER TABLE record ADD COLUMN b TEXT", "schema: record differs from its definition"),
        ("ANALYZE", None),
        ("UPDATE record SET value = '{' WHERE sort = 'b'", "record p b: the value is not JSON"),
        ("UPDATE record SET version = 2 WHERE sort = 'b'", "record p b: version 2, but the last"),
        ("UPDATE record SET version = 0 WHERE sort = 'b'", "record p b: version 0, but the last"),
        ("UPDATE record SET sort = '' WHERE sort = 'b'", "record p : a sort key must have 1 to"),
        ("UPDATE record SET sort = x'0a' WHERE 0", None),
        ("UPDATE record SET sort = char(10) WHERE sort = 'b'", None),
        ("UPDATE record SET sort = 'soon' WHERE partition LIKE 'due%'", "record due#"),
        (f"UPDATE record SET value = '\"{'x' * 390_000}\"' WHERE sort = 'b'", "record p b: the"),
    ],
)
async def test_what_was_changed_by_other_hands_is_found(
    tmp_path: Path, statement: str, problem: str | None
) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)
    alter(path, statement)
    found = problems(path)
    if problem is None:
        assert found == []
    else:
        [line] = found
        assert line.startswith(problem)
        assert "\n" not in line


async def test_a_key_that_would_break_the_line_is_quoted(tmp_path: Path) -> None:
    path = await closed(tmp_path / "a.db", {("p", "a\nb"): b"1"})
    alter(path, "UPDATE record SET value = '{'")
    [problem] = problems(path)
    assert problem.startswith("record ('p', 'a\\nb'): ")


def _flip_in_the_middle(path: Path) -> None:
    corrupt(segments(path)[0], b"fresh", b"flesh")


def _flip_at_the_end(path: Path) -> None:
    corrupt(segments(path)[0], b"last", b"l\0\0t")


def _cut_header(path: Path) -> None:
    os.truncate(segments(path)[0], 100)


def _spoil_header(path: Path) -> None:
    corrupt(segments(path)[0], b"ONCELOG2", b"ONCELOG0")


def _fill_with_garbage(path: Path) -> None:
    segments(path)[0].write_bytes(b"garbage " * 1_000)


def _rename(path: Path) -> None:
    segments(path)[0].rename(f"{path}-log.00000077")


def _lose_a_commit(path: Path) -> None:
    alter(path, "UPDATE record SET version = 1")
    alter(path, "UPDATE meta SET value = '0' WHERE name = 'folded_seq'")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_flip_in_the_middle, ["valid frames follow"]),
        (_flip_at_the_end, []),  # a torn end: it was never acknowledged
        (_cut_header, ["its header is truncated"]),
        (_spoil_header, ["its header does not verify"]),
        (_fill_with_garbage, ["its header does not verify"]),
        (_rename, ["it is number 1"]),
        (_lose_a_commit, ["commit 2 comes after 0", "version 1, but", "version 1, but"]),
    ],
)
async def test_damage_to_the_journal_is_found(
    tmp_path: Path, damage: Callable[[Path], None], words: list[str]
) -> None:
    path = await crashed(tmp_path / "a.db", [*FOLDED], UNFOLDED)
    damage(path)
    found = problems(path)
    assert len([line for line in found if "record due" not in line]) == len(words)
    for line, expected in zip(found, words, strict=False):
        assert expected in line
    assert all(line.startswith("journal: ") for line in found[:1])


async def test_a_record_from_a_fold_that_the_journal_does_not_know_is_found(tmp_path: Path) -> None:
    path = await crashed(tmp_path / "a.db", FOLDED, UNFOLDED)
    alter(path, "UPDATE record SET version = 3 WHERE sort = 'a'")
    assert problems(path) == ["record p a: version 3 is not in the journal"]


async def test_rules_judge_the_records_of_their_kind_and_look_up_others(tmp_path: Path) -> None:
    path = await crashed(
        tmp_path / "a.db",
        [{("job", "1"): b"1", ("job", "2"): b"1", ("index#1", "1"): b"1", ("index#1", "2"): b"1"}],
        [{("job", "2"): None, ("job", "3"): b"1", ("index#2", "3"): b"1", ("index#2", "4"): b"1"}],
    )

    def agrees(record: Record, get: Lookup) -> Iterator[str]:
        if get(("job", record.key[1])) is None:
            yield "its job is missing"

    found = check(str(path), [Rule("index", agrees)])
    assert sorted(found.problems) == [
        "record index#1 2: its job is missing",
        "record index#2 4: its job is missing",
    ]


async def test_it_stops_at_some_number_of_problems_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CHECK_PROBLEMS_MAX", 5)
    path = await closed(tmp_path / "a.db", {("p", str(number)): b"1" for number in range(9)})
    alter(path, "UPDATE record SET value = '{'")
    report = check(str(path))
    assert (len(report.problems), report.more) == (5, True)


async def test_progress_is_told_while_records_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PROGRESS_RECORDS", 2)
    path = await closed(tmp_path / "a.db", {("p", str(number)): b"1" for number in range(5)})
    told: list[tuple[str, int, int | None]] = []
    check(str(path), progress=lambda *args: told.append(args))
    assert told == [("checking records", done, 5) for done in (0, 2, 4)]


async def test_an_error_of_sqlite_is_a_problem_and_the_rest_is_still_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)
    monkeypatch.setattr(module, "_ROWS", "SELECT no_such_column FROM record")
    alter(path, "CREATE TABLE mine (a)")
    assert problems(path) == [
        "schema: mine is unexpected",
        "table: no such column: no_such_column",
    ]
