"""The modules for mutation testing, and their tests.

Tests mirror the package: a module's own tests have its name. `locks/invariants.py` has
`tests/locks/test_invariants.py`. Tests that start processes, databases or browsers are left out:
they test integration instead of details.
"""

import re
from pathlib import Path

NAMES = (
    "clock errors job_options quantities ids keys meters strict_json tokens",
    "store/cache json_values reasons",
    "engine/memtable engine/invariants engine/postgres/batch",
    "engine/sqlite/cache engine/sqlite/filters engine/sqlite/frames",
    "webhooks/http/addresses webhooks/answers webhooks/http/headers webhooks/hosts",
    "webhooks/http/places webhooks/signing",
    "tables/games/invariants tables/games/match tables/games/rules",
    "locks/records locks/invariants recurrence",
    "webhooks/timers/records webhooks/timers/invariants",
    "rooms/frames rooms/names rooms/positions rooms/room",
    "rooms/schemas rooms/state",
    "schedule/records schedule/invariants schedule/settings",
    "tables/policy tables/rating tables/invariants tables/rules",
    "schedule/due_entries work/effects schedule/local_workers work/outcome",
    "client/rooms/replica client/rooms/undo",
    "apps/credit/application apps/credit/decision apps/credit/record_id apps/credit/soap",
    "apps/rps/numbers apps/rps/rules apps/rps/sns_signature apps/rps/spelling apps/rps/words",
    "apps/tictactoe/rules",
    "web/auth web/grants web/handshake web/metrics web/rates web/routes",
    "web/text_frames web/api/timer_views",
    "testing/locks testing/simulation/history testing/simulation/linear",
    "testing/simulation/schedule/replay testing/simulation/schedule/verdict",
)
LEFT_OUT = re.compile(
    r"_(browser|certified|docs|engines|fuzz|kill|load|many|power|same|simulated|soak|tls|types)\.py$"
)


def modules() -> list[str]:
    """The paths of the modules in the repository."""
    names = [name for line in NAMES for name in line.split()]
    return sorted(f"{'' if name.startswith('apps/') else 'onceward/'}{name}.py" for name in names)


def tests_of(root: Path, module: str) -> list[str]:
    """The paths of the tests of a module."""
    *folders, name = Path(module.removeprefix("onceward/")).with_suffix("").parts
    folder = root.joinpath("tests", *folders)
    found = {*folder.glob(f"test_{name}.py"), *folder.glob(f"test_{name}_*.py")}
    found |= {*folder.parent.glob(f"test_{folder.name}_{name}.py")}
    return sorted(
        path.relative_to(root).as_posix() for path in found if not LEFT_OUT.search(path.name)
    )


def dotted(module: str) -> str:
    """The import name of a module."""
    return module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
