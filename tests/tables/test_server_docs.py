"""What the guide says is so."""

import re
from pathlib import Path

from onceward.tables import KINDS, Policy, Seats
from onceward.tables.operations import FUNCTIONS
from onceward.web.api.tables import ROUTES

GUIDE = (Path(__file__).parents[2] / "docs" / "seats.md").read_text()


def test_the_guide_names_every_rule_and_its_default() -> None:
    table = GUIDE[GUIDE.index("| rule | default | meaning |") :]
    rows = table[: table.index("\n\n")].splitlines()[2:]
    named = [name for row in rows for name in re.findall(r"`([a-z_]+)`", row.split("|")[1])]
    assert sorted(named) == sorted(Policy.__struct_fields__)
    for row in rows:
        names = re.findall(r"`([a-z_]+)`", row.split("|")[1])
        defaults = [getattr(Policy(), name) for name in names]
        said = row.split("|")[2].replace(",", "")
        for default in defaults:
            if type(default) is int:
                assert str(default) in said, row


def test_the_guide_says_what_kinds_of_tables_change() -> None:
    text = GUIDE[GUIDE.index("`speed` has") :].replace(",", "").partition("\n\n")[0]
    for kind, rules in KINDS.items():
        for name, value in rules.items():
            values = value if isinstance(value, tuple) else (value,)
            assert kind in text
            assert name in text
            assert all(str(one) in text for one in values if one is not True)


def test_the_guide_names_every_function_and_route() -> None:
    functions = {
        name
        for name in dir(Seats)
        if not name.startswith("_")
        and name
        not in ("tick", "expire", "purge", "read_to_expire", "fetch", "referees", "rounds_type")
        and name not in ("policy_of", "count_with")
    }
    assert functions == set(re.findall(r"`seats\.([a-z]+)\(tx", GUIDE))
    for route in ROUTES:
        path = route.path.removeprefix("/v1/tables/{id}")
        assert path in GUIDE or path.replace("/", "…/") in GUIDE, route.path
    assert {"tables.join", "tables.leave", "tables.move", "tables.ready"} < FUNCTIONS.keys()
