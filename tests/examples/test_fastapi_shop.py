"""The shop with FastAPI: its own tests, and a process of uvicorn."""

import asyncio
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp

from onceward.app import App
from tests.server_process import ROOT, environment, free_port

FOLDER = ROOT / "examples" / "fastapi_shop"


async def test_its_own_tests_pass(tmp_path: Path) -> None:
    for file in FOLDER.glob("*.py"):
        shutil.copy(file, tmp_path)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider"),
        cwd=tmp_path,
        env={**environment(), "ONCEWARD_DATABASE": "memory://"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    shown, _ = await process.communicate()
    assert process.returncode == 0, shown.decode()
    assert b"5 passed" in shown


async def test_orders_survive_a_restart_of_the_process(tmp_path: Path) -> None:
    port = free_port()
    serve = (sys.executable, "-m", "uvicorn", "--app-dir", str(FOLDER), "shop:web")
    sold = []
    for _ in range(2):
        process = await asyncio.create_subprocess_exec(
            *(*serve, "--port", str(port)),
            cwd=tmp_path,
            env=environment(),
            stderr=subprocess.PIPE,
        )
        assert process.stderr is not None
        while b"Uvicorn running" not in await process.stderr.readline():
            assert process.returncode is None
        url = f"http://127.0.0.1:{port}/orders/1"
        async with (
            aiohttp.ClientSession() as session,
            session.put(url, json={"item": "lamp"}) as response,
        ):
            sold.append(await response.json())
        process.send_signal(signal.SIGTERM)
        await process.communicate()
    assert sold == [{"item": "lamp", "left": 4}] * 2
    async with App(f"sqlite:///{tmp_path / 'onceward.db'}") as app:
        assert await app.run(lambda tx: tx.get(("stock", "lamp"))) == 4
