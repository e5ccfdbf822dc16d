"""Which modules are tried, and which tests are theirs.

Tests mirror the package: a module's own are those that carry its name; `parts/locks/rules.py` has
`tests/parts/test_locks_rules.py`. Tests that start processes, databases or browsers are left out:
what they find out is whether all works together, not where a bound lies.
"""

import re
from pathlib import Path

NAMES = (
    "clock errors heads ids keys meters strict tokens values",
    "engine/memtable engine/rules engine/postgres/batch",
    "engine/sqlite/cache engine/sqlite/filters engine/sqlite/frames",
    "outward/addresses outward/answers outward/headers outward/hosts",
    "outward/places outward/signing",
    "parts/games/checks parts/games/match parts/games/rules",
    "parts/locks/records parts/locks/rules parts/recurrence",
    "parts/timers/records parts/timers/rules",
    "parts/rooms/frames parts/rooms/names parts/rooms/positions parts/rooms/room",
    "parts/rooms/schemas parts/rooms/state",
    "parts/schedule/records parts/schedule/rules parts/schedule/settings",
    "parts/seats/policy parts/seats/rating parts/seats/rules parts/seats/seating",
    "service/agenda service/effects service/hands service/outcome",
    "client/rooms/replica client/rooms/undo",
    "apps/credit/application apps/credit/decision apps/credit/record_id apps/credit/soap",
    "apps/rps/numbers apps/rps/rules apps/rps/sns_signature apps/rps/spelling apps/rps/words",
    "apps/tictactoe/rules",
    "web/auth web/grants web/handshake web/metrics web/packing web/rates web/routes web/texts",
    "web/api/timer_views",
    "testing/locks testing/simulation/history testing/simulation/linear",
    "testing/simulation/schedule/replay testing/simulation/schedule/verdict",
)
LEFT_OUT = re.compile(
    r"_(browser|certified|docs|engines|fuzz|kill|load|many|power|same|simulated|soak|tls|types)\.py$"
)


def modules() -> list[str]:
    """The paths of the modules, as in the repository."""
    return sorted(f"onceward/{name}.py" for names in NAMES for name in names.split())


def tests_of(root: Path, module: str) -> list[str]:
    """The paths of the tests of a module."""
    first, *folders, name = Path(module).with_suffix("").parts
    folder = root.joinpath("tests", *folders)
    found = {*folder.glob(f"test_{name}.py"), *folder.glob(f"test_{name}_*.py")}
    found |= {*folder.parent.glob(f"test_{folder.name}_{name}.py")}
    assert first == "onceward"
    return sorted(
        path.relative_to(root).as_posix() for path in found if not LEFT_OUT.search(path.name)
    )


def dotted(module: str) -> str:
    """The name that a module is imported by."""
    return module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
