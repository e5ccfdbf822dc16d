"""`onceward dev` reloads an application on changes, and shows each attempt."""

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from onceward.app import App
from onceward.cli.dev import _changed, _files, _stop
from onceward.cli.dev_output import explain_import
from onceward.client import Client
from tests.cli.test_work import Jobs
from tests.server_process import ONCEWARD, environment, free_port

# A job with a body holds a connection to the test, until the test closes it.
SHOP = """
import asyncio

import onceward

app = onceward.App()


@app.handler("orders", attempts_max=1)
async def order(job):
    if job.body == "bad":
        raise ValueError("no such item")
    if job.body == "sold out":
        raise onceward.Fail("sold out\\nfor ever")
    reader, writer = await asyncio.open_connection("127.0.0.1", {port})
    try:
        writer.write(job.id.encode() + b"\\n")
        await reader.read()
    finally:
        writer.close()
    return "{version}"
"""


# On a busy machine, a process may take long to stop.
PATIENT = "import sys; from onceward.cli import dev, main; dev._KILL_S = 300.0; sys.exit(main())"


class Dev:
    """`onceward dev` in a folder."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def until(self, pattern: str) -> list[str]:
        """The lines up to one with this pattern."""
        assert self.process.stdout is not None
        lines: list[str] = []
        while not lines or not re.search(pattern, lines[-1]):
            line = await self.process.stdout.readline()
            assert line, (pattern, lines)
            lines.append(line.decode().rstrip())
        return lines


async def started(folder: Path, *options: str) -> Dev:
    arguments = [sys.executable, "-c", PATIENT, "dev", "shop:app", *options]
    return Dev(
        await asyncio.create_subprocess_exec(
            *arguments,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment(),
        )
    )


@pytest.fixture
async def jobs() -> AsyncIterator[tuple[Jobs, int]]:
    jobs = Jobs()
    server = await asyncio.start_server(jobs.connected, "127.0.0.1", 0)
    yield jobs, server.sockets[0].getsockname()[1]
    server.close()


async def test_an_application_is_reloaded_and_loses_no_job(
    tmp_path: Path, jobs: tuple[Jobs, int]
) -> None:
    begun, back = jobs
    shop = tmp_path / "shop.py"
    shop.write_text(SHOP.format(port=back, version="first"))
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    dev = await started(tmp_path, "--port", str(port), "--drain-s", "0")
    shown = await dev.until("opens the console")
    assert shown[-2:] == [
        f"onceward dev runs shop:app at {url}; it reloads on changes, Ctrl-C stops it",
        shown[-1],
    ]
    assert shown[-1].startswith(f"  {url}/console#enter=")
    async with Client(url, patience_s=60) as client:
        done = await client.send("orders", None)
        (await begun.begun.get())[1].close()
        [line] = await dev.until(done.id)
        assert line.split()[1:5] == ["orders", done.id, "attempt", "1"]
        assert line.endswith("  succeeded")

        bad = await client.send("orders", "bad")
        [line] = await dev.until(bad.id)
        assert line.endswith("  failed: ValueError: no such item")
        error = await dev.until("^ValueError")
        assert error[0] == "Traceback (most recent call last):"
        assert error[1].startswith(f'  File "{shop}", line ')
        assert error[-1] == "ValueError: no such item"

        final = await client.send("orders", "sold out")
        [line] = await dev.until(final.id)
        assert line.endswith("  failed: sold out")

        cut = await client.send("orders", None)
        _, writer = await begun.begun.get()
        shop.write_text("def (")
        shown = await dev.until("waiting for a change of a Python file")
        writer.close()
        assert shown[0] == "shop.py changed; reloading"
        assert f"{cut.id}  attempt 1" in shown[1]
        assert shown[1].endswith("  released")
        assert [line.strip() for line in shown[-5:-1]] == [
            f'File "{shop}", line 1',
            "def (",
            "^",
            "SyntaxError: invalid syntax",
        ]
        shop.write_text(SHOP.format(port=back, version="second"))
        shown = await dev.until("reloaded")
        assert shown[-1] == f"reloaded shop:app at {url}"
        again, writer = await begun.begun.get()
        assert again == cut.id
        dev.process.send_signal(signal.SIGINT)
        [*_, line] = await dev.until(cut.id)
        assert line.endswith("  released")
        assert await dev.process.wait() == 0
        writer.close()
    async with App(f"sqlite:///{tmp_path / 'onceward.db'}") as app:
        found = [await app.job(id_) for id_ in (done.id, bad.id, final.id, cut.id)]
    assert [job.state for job in found] == ["succeeded", "failed", "failed", "queued"]
    assert [job.result for job in found] == ["first", None, None, None]


async def test_it_ends_with_the_process_that_watches_files(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP.format(port=1, version="first"))
    dev = await started(tmp_path, "--port", "0")
    await dev.until("opens the console")
    dev.process.kill()
    assert dev.process.stdout is not None
    assert await dev.process.stdout.read() == b""  # both have closed it


async def test_an_error_that_no_change_repairs_ends_it(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP.format(port=1, version="first"))
    async with App(f"sqlite:///{tmp_path / 'onceward.db'}"):
        dev = await started(tmp_path, "--port", "0")
        await dev.until(r"\[database_in_use\]")
        assert await dev.process.wait() == 65


async def test_without_an_application_it_is_one_line(tmp_path: Path) -> None:
    done = await asyncio.create_subprocess_exec(
        *ONCEWARD, "dev", stderr=subprocess.PIPE, cwd=tmp_path, env=environment()
    )
    _, err = await done.communicate()
    assert done.returncode == 78
    assert err == (b"onceward: no application to run; use `onceward dev shop:app` [bad_settings]\n")


def test_a_process_that_does_not_stop_is_killed(capsys: pytest.CaptureFixture[str]) -> None:
    script = "import signal; signal.signal(15, signal.SIG_IGN); print('on', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        _stop(child, 0)
        assert child.returncode == -signal.SIGKILL
    assert "killed; its jobs run again" in capsys.readouterr().out


def test_python_files_are_watched_and_environments_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("shop.py", "a/b/c.py", ".git/x.py", "env/pyvenv.cfg", "env/lib/y.py", "z.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    files = _files()
    assert sorted(files) == ["a/b/c.py", "shop.py"]
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        (tmp_path / "shop.py").write_text("changed")
        (tmp_path / "a/b/c.py").unlink()
        (tmp_path / "new.py").write_text("")
        assert _changed(child, files) == ["a/b/c.py", "new.py", "shop.py"]
    assert files == _files()


def test_an_import_error_has_frames_of_the_application_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_broken_shop.py").write_text("def f():\n    import onceward.nothing\nf()\n")
    assert explain_import("my_broken_shop") is False
    shown = capsys.readouterr().err
    assert shown.count("  File ") == 2
    assert "ModuleNotFoundError: No module named 'onceward.nothing'" in shown
    assert explain_import("no_such_module") is False
    assert capsys.readouterr().err == "ModuleNotFoundError: No module named 'no_such_module'\n"
    assert explain_import("json") is True
