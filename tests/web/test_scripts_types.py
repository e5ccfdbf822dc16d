"""The types of the client for browsers are sound, and say what programs may do."""

import json
import re
import shutil
import subprocess
from pathlib import Path

from tests.needs import missing, need_program
from tests.server_process import ROOT
from tests.typescript import MODULES, compiled

PROGRAM = """\
import { Live } from "onceward";
import { Client } from "onceward/http";
import { useRoom } from "onceward/react";
import { RoomService } from "onceward/roomservice";
import { sign } from "onceward/tokens";
console.log(...[Live, Client, useRoom, RoomService, sign].map((one) => typeof one));
"""
# What they need of a browser, without all that one has.
BROWSER = """\
interface AbortSignal { readonly aborted: boolean }
declare class AbortController { readonly signal: AbortSignal }
declare class URL { constructor(url: string) }
"""


def test_a_program_may_do_what_the_types_say_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "browser.d.ts").write_text(BROWSER)
    done = compiled(tmp_path, ["browser.d.ts", str(ROOT / "tests" / "js" / "types" / "client.ts")])
    assert (done.stdout, done.returncode) == ("", 0)


def test_what_npm_would_publish_can_be_imported_by_name(tmp_path: Path) -> None:
    source, package = ROOT / "clients" / "js", tmp_path / "node_modules" / "onceward"
    package.mkdir(parents=True)
    shutil.copy(source / "package.json", package)
    for pattern in json.loads((source / "package.json").read_text())["files"]:
        for path in source.glob(pattern):
            if path.is_dir():
                shutil.copytree(path, package / path.name)
            else:
                shutil.copy(path, package)
    (package.parent / "react").symlink_to(MODULES / "react")
    (tmp_path / "program.mjs").write_text(PROGRAM)
    if not (MODULES / "react").is_dir():
        missing("there is no React here: scripts/npm.sh installs it")
    done = subprocess.run(
        [need_program("node"), tmp_path / "program.mjs"],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("function function function function function\n", "")


def test_the_package_for_npm_has_this_version_and_all_its_scripts() -> None:
    from onceward import __version__

    folder = ROOT / "clients" / "js"
    package = json.loads((folder / "package.json").read_text())
    # Python writes pre-releases as 0.1.0a1, npm as 0.1.0-alpha.1.
    assert package["version"] == re.sub(r"a(\d+)$", r"-alpha.\1", __version__)
    for found in list(package["exports"].values())[:-1]:
        assert all((folder / path).is_file() for path in found.values())
    named = {found["default"] for found in list(package["exports"].values())[:-1]}
    scripts = {f"./{path.name}" for path in folder.glob("*.js")}
    assert named == {*scripts, "./backend/tokens.js"}
