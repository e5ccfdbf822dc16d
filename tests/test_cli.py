import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from onceward import __version__, cli, keys, limits
from onceward.cli.display import Display
from onceward.engine.sqlite import SQLiteEngine
from onceward.errors import TABLE
from tests.bank import Bank
from tests.databases import Contents, alter, closed, commit, corrupt, crashed, segments

ONCEWARD = (sys.executable, "-m", "onceward")
FOLDED: list[Contents] = [{("shop#1", "a"): b'"plain"', ("seat", "a"): b"2"}]
UNFOLDED: list[Contents] = [{("shop#1", "b"): b'"fresh"'}, {("seat", "a"): b"3"}]


# Lets permissions hold for the superuser too, from the next program on.
POWERLESS = """
import ctypes, os
if os.geteuid() == 0:
    drop_from_bounding_set, override, read_search = 24, 1, 2
    for power in (override, read_search):
        assert ctypes.CDLL(None).prctl(drop_from_bounding_set, power, 0, 0, 0) == 0
"""

Capture = pytest.CaptureFixture[str]


def run(*arguments: object) -> int:
    return cli.main([str(argument) for argument in arguments])


def start(*arguments: object, before: str = "") -> "subprocess.CompletedProcess[str]":
    """Run the command as a process of its own, which may do something before it starts."""
    command = [*ONCEWARD, *map(str, arguments)]
    if before:
        script = f"{before}\nimport os, sys\nos.execv(sys.argv[1], sys.argv[1:])"
        command = [sys.executable, "-c", script, *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


def test_the_version_is_told(capsys: Capture) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"onceward {__version__}\n"


@pytest.mark.parametrize("command", ["inspect", "backup", "check"])
def test_every_command_explains_itself(capsys: Capture, command: str) -> None:
    assert run("db", command, "--help") == 0
    text = capsys.readouterr().out
    assert "FILE" in text
    assert f"example: onceward db {command} " in " ".join(text.split())


def test_the_help_lists_the_exit_codes(capsys: Capture) -> None:
    assert run("--help") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "72 damaged" in text
    assert "70 no_such_file" in text
    assert "76 no_such_database" in text
    assert "77 not allowed" in text


@pytest.mark.parametrize("arguments", [(), ("dance",), ("db", "inspect"), ("db", "backup", "a.db")])
def test_wrong_usage_is_explained(capsys: Capture, arguments: tuple[str, ...]) -> None:
    assert run(*arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("onceward: ")
    assert "--help`. [bad_request]\n" in shown.err
    assert shown.err.count("\n") == 1


async def test_inspect_is_for_people(tmp_path: Path, capsys: Capture) -> None:
    path = await crashed(tmp_path / "a.db", FOLDED, UNFOLDED)
    assert run("db", "inspect", path) == 0
    shown = capsys.readouterr()
    lines = [" ".join(line.split()) for line in shown.out.splitlines()]
    assert f"database {path}" in lines
    assert "owner none: no process has it open" in lines
    assert "last commit 3" in lines
    assert "table 2 records, as of commit 1" in lines
    assert "oldest due none" in lines
    assert "shop 2 28 bytes" in lines
    assert "seat 1 6 bytes" in lines
    assert "total 3 34 bytes" in lines
    [journal] = [line for line in lines if line.startswith("journal ")]
    assert "2 commits not yet in the table, with changes of 2 records" in journal
    assert shown.err == ""


async def test_inspect_says_what_is_due(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "a.db"
    async with SQLiteEngine(str(path)) as engine:
        await commit(engine, {("due#1", keys.join(5_000, "late")): b"1"})
        assert run("db", "inspect", path) == 0
        shown = capsys.readouterr().out
        assert "1970-01-01 00:00:05+00:00 (" in shown
        assert " late), due#1" in shown
        assert f"process {os.getpid()} on " in shown
        await commit(
            engine,
            {
                ("due#1", keys.join(5_000, "late")): None,
                ("due#1", keys.join(253_000_000_000_000, "far")): b"1",
            },
        )
    assert run("db", "inspect", path) == 0
    shown = capsys.readouterr().out
    assert "(in " in shown
    assert "journal\tnone" in shown


async def test_inspect_shows_a_time_beyond_the_calendar_as_a_number(
    tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "a.db"
    async with SQLiteEngine(str(path)) as engine:
        await commit(engine, {("due#1", keys.join(limits.KEY_NUMBER_MAX, "never")): b"1"})
    assert run("db", "inspect", path) == 0
    assert f"{limits.KEY_NUMBER_MAX} ms after 1970 (in " in capsys.readouterr().out


async def test_inspect_json_is_for_programs(tmp_path: Path, capsys: Capture) -> None:
    path = await crashed(tmp_path / "a.db", FOLDED, UNFOLDED)
    assert run("db", "inspect", "--json", path) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kinds"] == {
        "shop": {"records": 2, "bytes": 28},
        "seat": {"records": 1, "bytes": 6},
    }
    assert found["total"] == {"records": 3, "bytes": 34}
    assert (found["last_seq"], found["folded_seq"], found["table_records"]) == (3, 1, 2)
    assert (found["journal"]["commits"], found["journal"]["records"]) == (2, 2)
    assert (found["owner"], found["oldest_due"], found["expired_records"]) == (None, None, 0)
    assert (found["format"], len(found["database_id"])) == (2, 32)
    assert found["file_bytes"]["a.db"] == path.stat().st_size
    assert len(found["file_bytes"]) == 2 + len(segments(path))


async def test_backup_says_what_it_copied(tmp_path: Path, capsys: Capture) -> None:
    path = await crashed(tmp_path / "a.db", FOLDED, UNFOLDED)
    assert run("db", "backup", path, tmp_path / "copy.db") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Copied 3 records (")
    assert f") as of commit 3 to {tmp_path / 'copy.db'} in " in shown
    assert run("db", "backup", "--quiet", "--force", path, tmp_path / "copy.db") == 0
    assert capsys.readouterr() == ("", "")
    assert run("db", "check", tmp_path / "copy.db") == 0


async def test_check_says_in_one_line_that_all_is_well(tmp_path: Path, capsys: Capture) -> None:
    path = await crashed(tmp_path / "a.db", FOLDED, UNFOLDED)
    assert run("db", "check", path) == 0
    assert capsys.readouterr() == (f"{path} is intact: 3 records, 3 commits\n", "")
    assert run("db", "check", "--quiet", path) == 0
    assert capsys.readouterr() == ("", "")


async def test_check_lists_the_problems(tmp_path: Path, capsys: Capture) -> None:
    path = await crashed(tmp_path / "a.db", FOLDED, UNFOLDED)
    corrupt(segments(path)[0], b"fresh", b"flesh")
    assert run("db", "check", path) == TABLE["damaged"].exit
    shown = capsys.readouterr()
    assert shown.out.startswith("journal: a.db-log.")
    assert shown.out.count("\n") == 1
    assert shown.err == (
        f"onceward: {path} is damaged: 1 problem found. Restore a backup. [damaged]\n"
    )


async def test_check_says_when_there_are_more_problems(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "a.db"
    await closed(path, *({("p", f"{n}-{m}"): b"1" for m in range(60)} for n in range(2)))
    alter(path, "UPDATE record SET value = '{'")
    assert run("db", "check", path) == TABLE["damaged"].exit
    shown = capsys.readouterr()
    assert shown.out.count("\n") == 100
    assert "more than 100 problems found" in shown.err


async def _missing(path: Path) -> None:
    pass


async def _directory(path: Path) -> None:
    path.mkdir()


async def _text(path: Path) -> None:
    path.write_text("Dear diary,\n" * 100)


async def _foreign(path: Path) -> None:
    alter(path, "CREATE TABLE song (title)")


async def _newer(path: Path) -> None:
    await closed(path, *FOLDED)
    alter(path, "PRAGMA user_version = 99")


async def _cut_off(path: Path) -> None:
    await closed(path, *FOLDED)
    os.truncate(path, 5_000)


BAD_FILES = [
    (_missing, "no_such_file"),
    (_directory, "is_a_directory"),
    (_text, "not_a_database"),
    (_foreign, "not_a_database"),
    (_newer, "unsupported_format"),
    (_cut_off, "damaged"),
]


@pytest.mark.parametrize("command", ["inspect", "backup", "check"])
@pytest.mark.parametrize(("make", "code"), BAD_FILES)
async def test_each_bad_file_has_its_message_and_exit_code(
    tmp_path: Path, capsys: Capture, command: str, make: Callable[..., object], code: str
) -> None:
    path = tmp_path / "a.db"
    await make(path)  # type: ignore[misc]
    target = [tmp_path / "copy.db"] if command == "backup" else []
    assert run("db", command, path, *target) == TABLE[code].exit
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("onceward: ")
    assert shown.err.endswith(f" [{code}]\n")
    assert shown.err.count("\n") == 1
    assert str(path) in shown.err
    assert not (tmp_path / "copy.db").exists()


@pytest.mark.parametrize("command", ["inspect", "backup"])
async def test_a_garbage_segment_stops_all_but_the_check(
    tmp_path: Path, capsys: Capture, command: str
) -> None:
    path = await crashed(tmp_path / "a.db", FOLDED, UNFOLDED)
    segments(path)[0].write_bytes(b"garbage")
    target = [tmp_path / "copy.db"] if command == "backup" else []
    assert run("db", command, path, *target) == TABLE["damaged"].exit
    assert "its header is truncated" in capsys.readouterr().err


async def test_an_unreadable_segment_is_named(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await crashed(tmp_path / "a.db", FOLDED, UNFOLDED)
    segment = segments(path)[0]
    segment.unlink()
    segment.mkdir()  # permissions do not stop the superuser; this does
    assert run("db", "inspect", path) == TABLE["storage_failed"].exit
    assert f"{segment} cannot be read: Is a directory." in capsys.readouterr().err


async def test_a_read_only_folder_is_no_obstacle_to_looking(tmp_path: Path) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)
    tmp_path.chmod(0o555)
    shown = start("db", "check", path, before=POWERLESS)
    assert shown.stdout == f"{path} is intact: 2 records, 1 commits\n"
    assert sorted(os.listdir(tmp_path)) == ["a.db", "a.db-owner"]
    shown = start("db", "backup", path, tmp_path / "b.db", before=POWERLESS)
    assert shown.returncode == TABLE["read_only"].exit
    tmp_path.chmod(0o755)


def test_a_crashed_database_in_a_read_only_folder_can_be_read_or_says_why(tmp_path: Path) -> None:
    path = tmp_path / "bank.db"
    with Bank(path) as bank:
        bank.work(500)
        bank.kill()
    assert Path(f"{path}-wal").stat().st_size > 0
    tmp_path.chmod(0o555)
    shown = start("db", "check", path, before=POWERLESS)
    assert shown.stdout.startswith(f"{path} is intact: ")
    tmp_path.chmod(0o755)
    Path(f"{path}-shm").unlink()
    tmp_path.chmod(0o555)
    shown = start("db", "check", path, before=POWERLESS)
    assert "SQLite keeps its locks in" in shown.stderr
    assert shown.returncode == TABLE["read_only"].exit
    tmp_path.chmod(0o755)


async def test_a_copy_that_may_not_grow_any_more_leaves_nothing_behind(tmp_path: Path) -> None:
    path = await closed(
        tmp_path / "a.db", {("p", str(n)): b"[%s]" % b"".ljust(30_000) for n in range(9)}
    )
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 17, 1 << 17))"
    shown = start("db", "backup", path, tmp_path / "copy.db", before=limit)
    assert shown.stderr.endswith(" [storage_full]\n")
    assert shown.returncode == TABLE["storage_full"].exit
    assert sorted(os.listdir(tmp_path)) == ["a.db", "a.db-owner"]


async def test_a_file_that_may_not_be_read_is_said_to_be_so(tmp_path: Path) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)
    path.chmod(0o200)
    shown = start("db", "inspect", path, before=POWERLESS)
    assert "no permission to read" in shown.stderr
    assert shown.returncode == TABLE["storage_failed"].exit


def test_the_command_is_installed() -> None:
    command = Path(sys.executable).with_name("onceward")
    shown = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout == f"onceward {__version__}\n"


def test_all_commands_work_on_a_busy_database(tmp_path: Path) -> None:
    path = tmp_path / "bank.db"
    with Bank(path) as bank:
        for number in range(2):
            transfers = len(bank.work(100))
            shown = start("db", "inspect", path, "--json")
            assert json.loads(shown.stdout)["kinds"]["transfer"]["records"] >= transfers
            shown = start("db", "check", path)
            assert (shown.returncode, shown.stderr) == (0, "")
            shown = start("db", "backup", path, tmp_path / f"{number}.db")
            assert (shown.returncode, shown.stderr) == (0, "")
            bank.work(1)
    assert run("db", "check", tmp_path / "0.db") == 0


async def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)
    for arguments in (["db", "inspect"], ["db", "inspect", "--json"], ["db", "check"]):
        out, into = os.pipe()
        os.close(out)
        process = subprocess.run(  # noqa: ASYNC221
            [*ONCEWARD, *arguments, str(path)], stdout=into, stderr=subprocess.PIPE, text=True
        )
        os.close(into)
        assert (process.returncode, process.stderr) == (141, "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_command_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    path = asyncio.run(closed(tmp_path / "a.db", *FOLDED))
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(Display, "show", lambda *_: os.kill(os.getpid(), number))
    # Tests that a shell runs in the background have Ctrl-C ignored.
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert run("db", "backup", path, tmp_path / "copy.db") == code
    finally:
        signal.signal(signal.SIGINT, interrupt)
    assert sorted(os.listdir(tmp_path)) == ["a.db", "a.db-owner"]
    assert signal.getsignal(signal.SIGTERM) is before


async def test_progress_is_shown_on_a_terminal_and_only_there(tmp_path: Path) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)
    script = (
        "import sys; from onceward import cli; cli.display.PATIENCE_NS = -1; "
        f"copy = [{str(path)!r}, {str(tmp_path / 'copy.db')!r}, '--force']; "
        "sys.exit(cli.main(['db', 'backup', *copy]))"
    )

    def shown(*options: str) -> bytes:
        parent, child = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
        process = subprocess.run(
            [sys.executable, "-c", script, *options],
            stdout=subprocess.PIPE,
            stderr=child,
            env=environment,
        )
        assert process.returncode == 0
        assert process.stdout.startswith(b"Copied 2 records")
        os.close(child)
        text = b""
        try:
            while piece := os.read(parent, 4_096):
                text += piece
        except OSError:
            pass  # the end, on Linux
        os.close(parent)
        return text

    assert b"syncing" in shown()


async def test_progress_is_not_shown_when_told_to_be_quiet(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await closed(tmp_path / "a.db", *FOLDED)
    monkeypatch.setattr(cli.display, "PATIENCE_NS", -1)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert run("db", "backup", "--quiet", path, tmp_path / "copy.db") == 0
    assert capsys.readouterr() == ("", "")
    assert run("db", "check", path) == 0
    assert "checking records" in capsys.readouterr().err
