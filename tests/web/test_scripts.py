"""The client for browsers as the server gives it to pages, and as Node runs it."""

import asyncio
import gzip
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from onceward.app import App
from onceward.web.packing import pack
from onceward.web.scripts import NAMES, folder, modules, packed
from tests.client.served import Served
from tests.needs import need, need_program
from tests.schedule.cluster import virtual
from tests.tables.games.playing import Guess
from tests.web.asgi import Caller, serving_to

BYTES_MAX = 12_000
# What plays the vectors, as the entry of a pack.
PLAYED = """\
export { between, stepped } from "./client/positions.js";
export { State } from "./client/state.js";
export { Replica } from "./client/replica.js";
"""


def test_the_client_is_small() -> None:
    for name in NAMES:
        script = packed(name)
        print(f"{name}: {len(script.text)} bytes, {len(script.small)} by gzip")
    assert len(packed("client.js").small) < BYTES_MAX


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


def test_an_installed_copy_has_the_same_modules(tmp_path: Path) -> None:
    builder = need("hatchling.builders.wheel").WheelBuilder(str(folder().parents[1]))
    (wheel,) = builder.build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as packed:
        names = [name for name in packed.namelist() if name.startswith("onceward/web/js/")]
        installed = {
            name.removeprefix("onceward/web/js/"): packed.read(name).decode()
            for name in names
            if name.endswith(".js")
        }
    assert installed == modules()
    assert "onceward/web/js/client.d.ts" in names


def test_node_runs_the_tests_of_the_modules(tmp_path: Path) -> None:
    packed = tmp_path / "played.mjs"
    packed.write_text(pack({**modules(), "all.js": PLAYED}, "all.js", {}))
    tests = sorted(str(path) for path in Path("tests/js").glob("*.test.js"))
    run = subprocess.run(
        [_node(), "--test", *tests],
        env={**_packed(tmp_path), "PACKED": packed.as_uri()},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert run.returncode == 0, run.stdout[-20_000:]
    assert "# fail 0" in run.stdout


@pytest.mark.parametrize("script", ["calls.js", "compares.js", "tables.js"])
async def test_node_runs_programs_against_a_server(tmp_path: Path, script: str) -> None:
    app = App("memory://", slots=4)
    app.game(Guess())
    async with Served(app) as served:
        run = await asyncio.create_subprocess_exec(
            *(_node(), "--experimental-websocket", f"tests/js/{script}", served.url),
            env=_packed(tmp_path),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said, wrong = await run.communicate()
    assert said == b"well\n", wrong.decode()[-5_000:]


def _packed(folder: Path) -> dict[str, str]:
    """An environment that says where the scripts are, as the server gives them."""
    (folder / "package.json").write_text('{"type": "module"}')
    for name in ("client.js", "http.js"):
        (folder / name).write_bytes(packed(name).text)
    places = {"CLIENT": folder / "client.js", "HTTP": folder / "http.js"}
    return {**os.environ, **{name: path.as_uri() for name, path in places.items()}}


def _node() -> str:
    return need_program("node")
