"""One program for the published `@roomservice/browser` and for the drop-in: both do the same, but
for what the documentation says to be different. The servers of the published one are gone; a
stand-in answers it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from onceward.app import App
from tests.client.served import Served
from tests.needs import missing, need_program
from tests.typescript import MODULES

pytestmark = pytest.mark.timeout(120)

PACKAGE = MODULES / "@roomservice" / "browser"
PROGRAM = Path(__file__).parents[1] / "js" / "roomservice.js"


async def seen(*arguments: object) -> Any:
    """What the program prints."""
    run = await asyncio.create_subprocess_exec(
        *(need_program("node"), "--experimental-websocket", PROGRAM, *map(str, arguments)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, wrong = await run.communicate()
    assert run.returncode == 0, wrong.decode()[-5_000:]
    return json.loads(said)


async def test_the_drop_in_does_what_the_published_package_does() -> None:
    if not PACKAGE.is_dir():
        missing("there is no @roomservice/browser here: scripts/npm.sh installs it")
    assert json.loads((PACKAGE / "package.json").read_text())["version"] == "3.0.4"
    theirs = await seen("theirs", PACKAGE)
    async with Served(App("memory://", slots=4)) as served:
        ours = await seen("ours", served.url)
    assert ours["same"] == theirs["same"]
    assert len(ours["same"]) == 16, "so much is compared"
    # The table in docs/roomservice.md.
    assert theirs["differs"] == {
        "insertBelow": "Error",
        "setMissing": "Error",
        "sameObject": True,
        "loop": [True, {"first": 1, "again": 1}],
        "subscriber": ["of a subscriber", 0, "Infinite loop"],
        "burst": "first",
        "twoCalls": False,
        "presenceDays": 3,
        "tokensAfterLoss": 0,
    }
    assert ours["differs"] == {
        "insertBelow": "RangeError",
        "setMissing": "RangeError",
        "sameObject": False,
        "loop": [True, {"first": 1}],
        "subscriber": ["of a subscriber", 1, "of a subscrib"],
        "burst": "last",
        "twoCalls": True,
        "presenceDays": 1,
        "tokensAfterLoss": 1,
    }
