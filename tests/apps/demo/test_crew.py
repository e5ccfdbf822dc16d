"""A process that is kept is started again when it ends, and ended when nobody wants it any more."""

import asyncio
import os
from pathlib import Path

import pytest

from apps.demo.crew import Kept
from onceward.clock import Clock
from onceward.errors import OncewardError

STAYS = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"


def kept(folder: Path, script: str, came: "asyncio.Queue[str]") -> Kept:
    return Kept("child", folder, ("-c", script), {}, Clock(), lambda one: came.put_nowait(one.said))


async def test_who_is_killed_comes_back_and_tells_how_long_it_was_away(tmp_path: Path) -> None:
    came = asyncio.Queue[str]()
    child = kept(tmp_path, STAYS, came)
    assert not child.kill(), "there is none yet"
    running = asyncio.create_task(child.run())
    first = await came.get()
    assert (child.starts, child.kills, child.gone_ms()) == (1, 0, 0.0)
    assert child.kill()
    assert not child.kill(), "twice is once"
    assert child.gone_ms() >= 0
    second = await came.get()
    assert second != first
    assert (child.starts, child.kills) == (2, 1)
    assert child.away_ms > 0
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    for pid in (first, second):
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


async def test_who_cannot_be_started_is_given_up_with_what_it_says(tmp_path: Path) -> None:
    child = kept(tmp_path, "raise SystemExit('no such database')", asyncio.Queue())
    with pytest.raises(OncewardError, match="child has exited: no such database"):
        await child.run()


async def test_who_fails_again_and_again_is_given_up(tmp_path: Path) -> None:
    once = "import os; os.path.exists('was') and exit('worn out'); open('was', 'w'); print('here')"
    came = asyncio.Queue[str]()

    class Quick(Clock):
        async def sleep(self, seconds: float) -> None:
            await asyncio.sleep(0)

    child = Kept("child", tmp_path, ("-c", once), {}, Quick(), lambda one: came.put_nowait(""))
    with pytest.raises(OncewardError, match="worn out"):
        await child.run()
    assert child.starts == came.qsize() == 1
