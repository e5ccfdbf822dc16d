"""The tree keeps the house rules, and every rule catches what it is there to catch."""

from pathlib import Path

import pytest

from tests import tidy

TREE = tidy.read_tree(Path(__file__).parent.parent)
RULES = {
    rule.__name__: rule
    for rule in (
        tidy.imports_point_down,
        tidy.drivers_stay_with_their_engine,
        tidy.time_comes_from_clock,
        tidy.randomness_comes_from_ids,
        tidy.base_classes_have_children,
        tidy.class_names_are_unique_in_a_folder,
        tidy.files_are_short,
        tidy.limits_are_used,
        tidy.tests_do_not_sleep,
        tidy.tests_mirror_the_folders,
    )
}

# The rest of the tree of a planted violation.
STORE = "class Store: ..."

# rule: {path: (text, ...)}; each text alone in the tree is one violation.
CAUGHT: dict[str, dict[str, tuple[str, ...]]] = {
    "imports_point_down": {
        "onceward/novelty.py": ("",),
        "onceward/novelty/__init__.py": ("",),
        "onceward/store/store.py": (
            "import onceward",
            "import onceward.work.bulk",
            "import onceward.node as n",
            "from onceward import cli",
            "from onceward import App",
            "from onceward.work import inbox",
            "from onceward.testing import VirtualClock",
            "from .. import web",
            "from ..web import app",
            "def late():\n    from onceward.client import Client",
            "if TYPE_CHECKING:\n    from apps import rps",
            "from benchmarks import measure",
            "importlib.import_module('onceward.web.app')",
        ),
        "onceward/client/http.py": ("from onceward.web.frames import Frame",),
        "onceward/work/bulk.py": (
            "from onceward.work.worker import Worker",
            "from onceward.work import attempt",
            "from . import worker",
            "from onceward import locks",
            "from onceward.locks import part",
        ),
        "onceward/schedule/waiting.py": (
            "from onceward.work import bulk",
            "from onceward.schedule.claims import Claims",
        ),
        "onceward/engine/__init__.py": ("from onceward.store import Store",),
        "onceward/engine/base.py": (
            "from onceward.engine.memory import MemoryEngine",
            "from onceward.engine import connect",
        ),
        "onceward/engine/memory.py": ("from onceward.engine.sqlite.journal import Journal",),
        "onceward/engine/sqlite/fold.py": ("from ..memory import MemoryEngine",),
        "apps/rps/game.py": ("from benchmarks import measure",),
        "onceward/clock.py": ("from onceward import ids", "from onceward.engine import base"),
        "onceward/errors.py": ("from onceward.limits import KEY_MAX",),
        "onceward/limits/rooms.py": ("from onceward import errors",),
        "onceward/cli.py": ("from onceward.testing import simulate",),
        "onceward/testing/engine.py": (
            "from onceward.web import app",
            "from apps import rps",
            "from onceward import cli",
        ),
    },
    "drivers_stay_with_their_engine": {
        "onceward/store/store.py": ("import apsw", "from apsw import Connection", "import asyncpg"),
        "onceward/cli.py": ("import sqlite3", "def late():\n    import apsw.ext"),
        "onceward/engine/postgres.py": ("import apsw", "import boto3"),
        "onceward/engine/sqlite/journal.py": ("import asyncpg",),
        "onceward/engine/base.py": ("from botocore.config import Config",),
        "onceward/testing/faults.py": ("importlib.import_module('asyncpg')",),
    },
    "time_comes_from_clock": {
        "onceward/engine/sqlite/journal.py": (
            "import time\ntime.time()",
            "import time\ndef wait(now=time.monotonic): ...",
            "import time as t\nt.perf_counter_ns()",
            "from time import clock_gettime as read\nread(7)",
            "import time\nread(time)",
            "import time\nx = time.time_ns() // 10",
            "import datetime\ndatetime.datetime.now(datetime.UTC)",
            "from datetime import datetime\ndatetime.utcnow().timestamp()",
            "import datetime as dt\ndt.date.today()",
            "import asyncio\nasyncio.get_running_loop().time()",
            "from asyncio import get_event_loop\nget_event_loop().time()",
            "def f(loop):\n    return loop.time()",
            "class A:\n    def f(self):\n        return self._loop.time() + 1",
        ),
    },
    "randomness_comes_from_ids": {
        "onceward/work/bulk.py": (
            "import random\nrandom.random()",
            "from random import Random as R\nR(1)",
            "import secrets\nsecrets.token_hex()",
            "import uuid\nstr(uuid.uuid4())",
            "import os\nos.urandom(8)",
            "from os import getrandom\ngetrandom(8)",
        ),
    },
    "files_are_short": {
        "onceward/store/store.py": ("x = 1\n" * 701,),
        "onceward/web/static/console.js": ("let x\n" * 701,),
        "tests/store/test_store.py": ("x = 1\n" * 701,),
    },
    "limits_are_used": {
        "onceward/limits/store.py": ("KEYS_MAX = 1", "A_MAX = 1\nB_MAX = A_MAX"),
    },
    "base_classes_have_children": {
        "onceward/store/cache.py": (
            "class Base: ...\nclass Child(Base): ...\nx = Child()",
            "class Base(ABC): ...\nclass Child(Base[int], Other): ...",
            "class Base: ...\nfrom here import cache\nclass Child(cache.Base): ...",
        ),
    },
    "class_names_are_unique_in_a_folder": {
        "onceward/store/cache.py": ("class Store: ...",),
    },
    "tests_do_not_sleep": {
        "tests/store/test_store.py": (
            "import time\ntime.sleep(0)",
            "from time import sleep as nap\nnap(pause)",
            "import asyncio\nasync def f():\n    await asyncio.sleep(pause)",
            "from asyncio import sleep\nasync def f():\n    await sleep(.01)",
            "import asyncio\nwait = asyncio.sleep",
        ),
        "tests/conftest.py": ("import time\ntime.sleep(pause)",),
    },
    "tests_mirror_the_folders": {
        "tests/novelty/test_store.py": ("",),
        "tests/store/inner/test_store.py": ("",),
        "tests/apps/novelty/test_rules.py": ("",),
    },
}

# rule: {path: text}; nothing of this is a violation.
ALLOWED: dict[str, dict[str, str]] = {
    "imports_point_down": {
        "onceward/__init__.py": "from onceward.store import Store",
        "onceward/__main__.py": "from onceward.cli import main",
        "onceward/cli.py": "from onceward import __version__, web\nimport onceward.engine.sqlite",
        "apps/rps/rules.py": "import onceward\nfrom apps.rps import state",
        "onceward/work/worker.py": "from onceward.work import bulk, job\nimport onceward.rooms.hub",
        "onceward/work/bulk.py": "from onceward import schedule\nimport onceward.store",
        "onceward/engine/__init__.py": "from onceward.engine import base, memory, sqlite",
        "onceward/engine/sqlite/fold.py": "from onceward.engine.sqlite.journal import Journal",
        "onceward/engine/sqlite/journal.py": "from ..base import Engine\nimport apsw",
        "onceward/clock.py": "import time\nfrom onceward.limits import SLEW",
        "onceward/testing/node.py": "from onceward.client import Client\nimport onceward.testing",
    },
    "drivers_stay_with_their_engine": {
        "onceward/engine/sqlite.py": "import apsw",
        "onceward/engine/sqlite/journal.py": "import apsw\nimport apsw.ext",
        "onceward/engine/postgres.py": "import asyncpg",
        "onceward/engine/dynamodb/table.py": "import aiobotocore.session",
        "onceward/testing/faults.py": "import apsw",
    },
    "time_comes_from_clock": {
        "onceward/clock.py": "import time\ntime.clock_gettime(time.CLOCK_BOOTTIME)",
        "onceward/testing/clock.py": "import time\ntime.monotonic()",
        "onceward/store/store.py": "async def f(self, clock):\n    return clock.time(), self.now",
        "onceward/webhooks/timers.py": "import datetime\ndatetime.datetime.fromtimestamp(1, zone)",
    },
    "randomness_comes_from_ids": {
        "onceward/ids.py": "import secrets\nsecrets.token_bytes(8)",
        "onceward/testing/simulator.py": "import random\nrandom.Random(1)",
        "onceward/store/store.py": "import os\ndef f(random):\n    return random.of(os.getpid())",
    },
    "base_classes_have_children": {
        "onceward/store/store.py": "class Base: ...\nclass One(Base): ...\nclass Two(Base): ...",
        "onceward/store/cache.py": "class Kept: ...\nclass Faster(Kept): ...\nx = Kept()",
        "onceward/store/format.py": "class Wire(Protocol): ...\nclass Socket(Wire): ...",
        "onceward/store/values.py": "class Wrong(Exception): ...\nclass Worse(Wrong): ...",
        "onceward/client/timers.py": "class TimerCalls: ...\nclass Client(TimerCalls): ...",
    },
    "class_names_are_unique_in_a_folder": {
        "onceward/store/store.py": "class Store: ...\nclass Row: ...",
        "onceward/store/cache.py": "class _Store: ...",
        "onceward/engine/base.py": "class Row: ...",
    },
    "files_are_short": {"onceward/store/store.py": "x = 1\n" * 700},
    "limits_are_used": {
        "onceward/limits/store.py": "A_MAX = B_MAX = 1\nC_MAX = D_MAX = 2\nE_S: Final = 3 * C_MAX",
        "onceward/store/store.py": "from onceward import limits\nlimits.A_MAX + limits.E_S",
        "onceward/engine/base.py": "from onceward.limits import B_MAX as most\nprint(most)",
        "apps/rps/rules.py": "Budget('D_MAX')",
        "tests/store/test_store.py": "from onceward.limits import F_MAX\nF_MAX",
    },
    "tests_do_not_sleep": {
        "tests/store/test_store.py": "import asyncio\nasync def f():\n    await asyncio.sleep(0)",
        "tests/test_clock.py": "async def f(clock):\n    await clock.sleep(60)",
        "onceward/engine/sqlite.py": "import time\ntime.sleep(pause)",
    },
    "tests_mirror_the_folders": {
        "onceward/store/store.py": "",
        "onceward/engine/__init__.py": "",
        "onceward/engine/sqlite/__init__.py": "",
        "onceward/engine/sqlite/journal.py": "",
        "tests/test_tidy.py": "",
        "tests/conftest.py": "",
        "tests/store/test_store.py": "",
        "tests/test_store_fair_lines.py": "",
        "tests/test_engine.py": "",
        "tests/engine/test_sqlite.py": "",
        "tests/engine/test_sqlite_kill.py": "",
        "tests/engine/sqlite/test_journal.py": "",
    },
}

PLANTS = [
    pytest.param(rule, path, text, id=f"{rule}-{path}-{number}")
    for rule, files in CAUGHT.items()
    for path, texts in files.items()
    for number, text in enumerate(texts)
]


@pytest.mark.parametrize("rule", RULES)
def test_the_tree_keeps_the_rule(rule: str) -> None:
    violations = list(RULES[rule](TREE))
    assert not violations, "\n".join(violations)


@pytest.mark.parametrize(("rule", "path", "text"), PLANTS)
def test_a_planted_violation_is_caught_once(rule: str, path: str, text: str) -> None:
    (violation,) = RULES[rule]({"onceward/store/store.py": STORE, path: text})
    assert violation.startswith(f"{path}:")


@pytest.mark.parametrize("rule", RULES)
def test_what_the_rule_allows_is_not_caught(rule: str) -> None:
    assert list(RULES[rule](ALLOWED[rule])) == []


def test_every_rule_is_tried_and_sees_files() -> None:
    assert set(RULES) == set(CAUGHT) == set(ALLOWED)
    assert {"onceward/__init__.py", "tests/test_tidy.py"} <= set(TREE)
