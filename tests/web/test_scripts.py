"""The client for browsers as the server gives it to pages, and as Node runs it."""

import gzip
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

from onceward.web.packing import pack
from onceward.web.scripts import SCRIPTS, folder, modules
from tests.needs import missing, need
from tests.service.cluster import virtual
from tests.web.asgi import Caller, serving_to

BYTES_MAX = 12_000


def test_the_client_is_small() -> None:
    for name, script in SCRIPTS.items():
        print(f"{name}: {len(script.text)} bytes, {len(script.small)} by gzip")
    assert len(SCRIPTS["client.js"].small) < BYTES_MAX


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
    node = shutil.which("node")
    if node is None:
        missing("there is no node here")
    played = {"positions": "between, stepped", "state": "State", "replica": "Replica"}
    entry = "".join(
        f'export {{ {names} }} from "./client/{module}.js";\n' for module, names in played.items()
    )
    packed = tmp_path / "packed.mjs"
    packed.write_text(pack({**modules(), "all.js": entry}, "all.js", {}))
    tests = sorted(str(path) for path in Path("tests/js").glob("*.test.js"))
    run = subprocess.run(
        [node, "--test", *tests],
        env={**os.environ, "PACKED": packed.as_uri()},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert run.returncode == 0, run.stdout[-20_000:]
    assert "# fail 0" in run.stdout
