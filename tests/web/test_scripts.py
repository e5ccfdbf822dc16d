"""The client for browsers as the server gives it to pages, and as Node runs it."""

import asyncio
import gzip
import os
import shutil
import subprocess
import time
import zipfile
from pathlib import Path

import pytest

from onceward.app import App
from onceward.web.scripts import FOLDER, NAMES, bundled
from tests.client.served import Served
from tests.needs import missing, need, need_program
from tests.schedule.cluster import virtual
from tests.server_process import ServerProcess
from tests.tables.games.playing import Guess
from tests.web.asgi import Caller, serving_to

BYTES_MAX = {"client.js": 12_000, "http.js": 10_000, "react.js": 1_250}  # as docs/browser.md says
ROOT = FOLDER.parents[2]


def test_the_client_is_small() -> None:
    for name in NAMES:
        script = bundled(name)
        print(f"{name}: {len(script.text)} bytes, {len(script.small)} by gzip")
    assert [name for name, most in BYTES_MAX.items() if len(bundled(name).small) >= most] == []


@virtual
async def test_a_page_gets_it_as_small_as_it_can_read_it_and_once() -> None:
    async with serving_to(ann="all") as callers:
        caller = Caller(callers["ann"].server)  # nobody in particular
        whole = await caller("GET", "/client.js")
        assert (whole.status, whole.headers["content-type"]) == (
            200,
            "text/javascript; charset=utf-8",
        )
        assert "content-encoding" not in whole.headers
        small = await caller("GET", "/client.js", headers=[("accept-encoding", "br, gzip")])
        assert gzip.decompress(small.body) == whole.body
        assert whole.headers["access-control-allow-origin"] == "*"
        again = await caller(
            "GET", "/client.js", headers=[("if-none-match", whole.headers["etag"])]
        )
        assert (again.status, again.body) == (304, b"")


def test_a_wheel_has_the_same_scripts_and_their_types(tmp_path: Path) -> None:
    builder = need("hatchling.builders.wheel").WheelBuilder(str(ROOT))
    (wheel,) = builder.build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as opened:
        installed = {
            name.removeprefix("onceward/web/js/"): opened.read(name)
            for name in opened.namelist()
            if name.startswith("onceward/web/js/")
        }
    types = {path.name: path.read_bytes() for path in (ROOT / "clients" / "js").glob("*.d.ts")}
    assert installed == types | {name: bundled(name).text for name in NAMES}


def test_the_bundles_are_those_of_the_modules(tmp_path: Path) -> None:
    assert _built(ROOT / "clients" / "js", tmp_path) == {
        name: bundled(name).text for name in NAMES
    }, "clients/js has changed: run `make bundle` and commit onceward/web/js"


def test_another_module_makes_another_bundle(tmp_path: Path) -> None:
    source = shutil.copytree(ROOT / "clients" / "js", tmp_path / "source")
    errors = source / "client" / "errors.js"
    errors.write_text(errors.read_text().replace('"bad_request"', '"bad_requests"'))
    built = _built(source, tmp_path / "target")
    assert [name for name in NAMES if built[name] != bundled(name).text] == ["client.js"]


def test_node_runs_the_tests_of_the_modules(tmp_path: Path) -> None:
    tests = sorted(str(path) for path in Path("tests/js").glob("*.test.js"))
    run = subprocess.run(
        [_node(), "--test", "--test-reporter=tap", *tests],
        env=_served(tmp_path),
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert run.returncode == 0, run.stdout[-20_000:]
    assert "# fail 0" in run.stdout


@pytest.mark.parametrize("script", ["calls.js", "compares.js", "presences.js", "tables.js"])
async def test_node_runs_programs_against_a_server(tmp_path: Path, script: str) -> None:
    app = App("memory://", slots=4)
    app.game(Guess())
    async with Served(app) as served:
        run = await asyncio.create_subprocess_exec(
            *(_node(), "--experimental-websocket", f"tests/js/{script}", served.url),
            env=_served(tmp_path),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said, wrong = await run.communicate()
    assert said == b"well\n", wrong.decode()[-5_000:]


async def test_node_finds_a_server_that_was_away_for_long(tmp_path: Path) -> None:
    """It tries so often in vain as would take minutes with pauses that grow."""
    with ServerProcess(tmp_path) as server:
        async with asyncio.timeout(120):
            run = await asyncio.create_subprocess_exec(
                *(_node(), "--experimental-websocket", "tests/js/away.js", server.url),
                env=_served(tmp_path),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            assert run.stdout is not None
            try:
                await _said(run.stdout, b"live")
                for number in range(2):
                    server.kill()
                    await _said(run.stdout, b"away")
                    for _ in range(20 if number else 2):
                        await _said(run.stdout, b"attempt")
                    server.start()
                    await asyncio.to_thread(server.until_ready)
                    ready_s = time.monotonic()
                    await _said(run.stdout, b"live")
                    took_s = time.monotonic() - ready_s
                    await _said(run.stdout, b"saved")
                    print(f"connected again {took_s:.2f} s after the server was ready")
            finally:
                run.kill()
                await run.wait()


async def _said(lines: asyncio.StreamReader, word: bytes) -> None:
    """Read until a line is this word."""
    while (line := await lines.readline()).strip() != word:
        assert line, f"it has ended without {word.decode()}"


def _built(source: Path, target: Path) -> dict[str, bytes]:
    """The bundles of some modules, made by esbuild."""
    if not (ROOT / ".venv-npm" / "node_modules" / "esbuild").is_dir():
        missing("esbuild is not installed: scripts/npm.sh installs it")
    done = subprocess.run(
        [_node(), ROOT / "scripts" / "bundle.mjs", source, target],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return {path.name: path.read_bytes() for path in target.iterdir()}


def _served(folder: Path) -> dict[str, str]:
    """An environment that points the tests at the scripts as the server serves them."""
    (folder / "package.json").write_text('{"type": "module"}')
    for name in ("client.js", "http.js"):
        (folder / name).write_bytes(bundled(name).text)
    places = {"CLIENT": folder / "client.js", "HTTP": folder / "http.js"}
    return {**os.environ, **{name: path.as_uri() for name, path in places.items()}}


def _node() -> str:
    return need_program("node")
