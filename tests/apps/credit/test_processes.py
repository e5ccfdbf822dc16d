"""Processes of the storm are heard, killed, paused and ended."""

import os
from pathlib import Path

import pytest

from apps.credit.processes import Child
from onceward.clock import Clock
from onceward.errors import OncewardError

ECHO = (
    "import sys; print('ready', flush=True)\nfor line in sys.stdin: print(line, end='', flush=True)"
)


def child(folder: Path, script: str, **settings: str) -> Child:
    return Child("child", folder, "-c", script, **settings)


async def test_a_child_has_its_own_settings_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CREDIT_SECRET", "of somebody else")
    monkeypatch.setenv("ONCEWARD_PORT", "1")
    script = "import os; print({k: v for k, v in os.environ.items() if k[:4] in ('CRED', 'ONCE')})"
    one = child(tmp_path, script, CREDIT_NAME="me")
    await one.start()
    assert await one.line() == "{'CREDIT_NAME': 'me'}"
    assert [line async for line in one.lines()] == []
    assert await one.wait() == 0
    await one.end()


async def test_a_child_is_paused_and_killed(tmp_path: Path) -> None:
    one = child(tmp_path, ECHO)
    await one.start()
    assert await one.line() == "ready"
    states: list[str] = []

    class Watching(Clock):
        async def sleep(self, seconds: float) -> None:
            assert one._process is not None
            status = Path(f"/proc/{one._process.pid}/stat").read_text()
            while (state := status.rpartition(")")[2].split()[0]) != "T":
                status = Path(f"/proc/{one._process.pid}/stat").read_text()
            states.append(state)

    if os.path.exists("/proc/self/stat"):
        await one.pause(1, Watching())
        assert states == ["T"]
    assert one.alive
    one.kill()
    assert await one.wait() == -9
    assert not one.alive
    one.kill()  # twice is once
    await one.end()


async def test_a_child_that_fails_says_why(tmp_path: Path) -> None:
    one = child(tmp_path, "raise SystemExit('no such thing')")
    await one.start()
    with pytest.raises(OncewardError, match="no such thing"):
        await one.line()
    with pytest.raises(OncewardError, match="no such thing"):
        [line async for line in one.lines()]
    await one.end()
