"""Parts: every kind of record has an invariant, and nodes act on every kind of due entry."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import onceward
from onceward import keys, parts
from onceward.capabilities import CAPABILITIES, SCOPES
from onceward.engine.base import Record
from onceward.engine.invariants import Lookup, Rule
from onceward.engine.memory import MemoryEngine
from onceward.keys import Key
from onceward.node import Node
from onceward.parts import Attribute, Due, Kind, Made, Part, all_kinds, all_rules, guards, load
from onceward.schedule import due_partition
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.tables.records import Head, Lane
from onceward.tokens import Names
from onceward.web.auth import DEVELOPER

ID = "01M7000000000000000000000000"
NONSENSE = b'[["no sense"]]'
# Values for words in braces; others are names.
NUMBERS = {"number", "token", "piece", "rank", "priority", "due_ms", "ready_ms", "ended_ms"}
WORDS = {"slot": "0000", "xx": "00", "id": ID, "epoch": "e", "table": "t", "lane": "l"}
KINDS = all_kinds()
# Applications store any JSON, and some of the entries below are of tables that are being removed.
ANY = [kind for kind in KINDS if kind.word == "u"]
LEFT_OVER = [kind for kind in KINDS if kind.word in ("stand", "lane")]
JUDGED = [kind for kind in KINDS if kind not in ANY and kind not in LEFT_OVER]


def example(kind: Kind) -> Key:
    def value(found: re.Match[str]) -> str:
        return keys.number(1) if found[1] in NUMBERS else WORDS.get(found[1], "x")

    return tuple(re.sub(r"\{([^}]*)\}", value, text) for text in kind[:2])  # type: ignore[return-value]


def name_of(kind: Kind) -> str:
    return f"{kind.partition}-{kind.sort}"


def problems(record: Record, *others: Record) -> list[str]:
    known = {one.key: one for one in (record, *others)}
    found: list[str] = []
    for rule in all_rules():
        if rule.kind == keys.kind_of(record.key[0]):
            found += rule.judge(record, known.get)
    return found


def test_every_capability_with_a_register_is_in_the_list() -> None:
    root = Path(onceward.__file__).parent
    found = {".".join(path.parent.relative_to(root).parts) for path in root.rglob("register.py")}
    assert found == set(load()) == {one.folder for one in CAPABILITIES}


def test_every_kind_of_record_has_an_invariant() -> None:
    assert {rule.kind for rule in all_rules()} == {kind.word for kind in KINDS}
    assert len({kind[:2] for kind in KINDS}) == len(KINDS)


def test_due_kinds_belong_to_one_part_each() -> None:
    due = [one.kind for part in load().values() for one in part.due]
    assert len(set(due)) == len(due)
    assert all(part.make for name, part in load().items() if part.due and name != "schedule")


@pytest.mark.parametrize("kind", JUDGED, ids=name_of)
def test_a_value_that_makes_no_sense_is_reported(kind: Kind) -> None:
    try:
        found = problems(Record(example(kind), NONSENSE, 1))
    except Exception as error:  # which the check reports, too
        found = [repr(error)]
    assert found


@pytest.mark.parametrize("kind", LEFT_OVER, ids=name_of)
def test_nonsense_at_a_table_that_is_there_is_reported(kind: Kind) -> None:
    value = msgspec.json.encode(Head("e", lanes={"l": Lane(2)}))
    head = Record(("table#t", "head"), value, 1)
    assert problems(Record(example(kind), NONSENSE, 1), head)


def test_records_of_no_kind_are_reported() -> None:
    unknown = ["unknown kind of record: no part declares this key"]
    assert problems(Record(("config", "odd"), b"1", 1)) == unknown
    assert problems(Record(("clock", "last#odd"), b"1", 1)) == unknown
    assert problems(Record(("room#r", "odd"), b"1", 1)) == ["unknown record of a room"]
    assert problems(Record(("job#0000", f"{ID}#odd"), b"1", 1)) == ["unknown kind of job record"]
    entry = Record(("due#0000", keys.join(1, ID, "odd")), b'"odd"', 1)
    assert problems(entry) == ["unknown kind of due entry 'odd': no part declares it"]


class Well:
    """The object of a small part: due entries refill it."""

    def __init__(self) -> None:
        self.refilled = asyncio.Event()

    async def refill(self, tx: Transaction, entry: Key) -> None:
        tx.delete(entry)
        self.refilled.set()


def too_full(record: Record, get: Lookup) -> Iterator[str]:
    if msgspec.json.decode(record.value) > 10:
        yield "the well is too full"


async def test_a_new_part_is_acted_on_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    part = Part(
        kinds=(Kind("well", "{name}", int, "a well"),),
        rules=[Rule("well", too_full)],
        due=(Due("refill", Well.refill, writes=1),),
        make=lambda made: Well(),
    )
    known = {**load(), "wells": part}
    for module in (parts, sys.modules["onceward.node"]):
        monkeypatch.setattr(module, "load", lambda: known)
    async with await MemoryEngine().open() as engine:
        store = Store(engine)
        async with Node(store, slots=1) as node:
            node.act_on_parts()

            async def add(tx: Transaction) -> None:
                tx.put((due_partition(0), keys.join(tx.now_ms, ID, "refill")), "refill")

            await store.run(add)
            await node.parts.get(Well).refilled.wait()
    rules = all_rules.__wrapped__()
    full = Record(("well", "x"), b"11", 1)
    found = [text for rule in rules if rule.kind == "well" for text in rule.judge(full, {}.get)]
    assert found == ["the well is too full"]


async def test_a_part_gives_applications_its_attribute(monkeypatch: pytest.MonkeyPatch) -> None:
    part = Part(make=lambda made: Well(), attribute=Attribute("well", Well))
    known = {**load(), "wells": part}
    for module in (parts, sys.modules["onceward.node"]):
        monkeypatch.setattr(module, "load", lambda: known)
    app: Any = onceward.App("memory://")
    with pytest.raises(onceward.Unavailable, match="not running"):
        _ = app.well
    async with app:
        assert app.well is app.node.parts.get(Well)
    with pytest.raises(AttributeError):
        _ = app.wells


def test_guards_and_included_scopes_are_declared_by_the_parts() -> None:
    assert guards().keys() == {"send", "work", "manage", "read", "write", "room"}
    assert {one for scope in SCOPES.values() for one in scope.included_in} <= SCOPES.keys()
    text = (Path(onceward.__file__).parent / "web" / "calls.py").read_text()
    assert [action for action in SCOPES if f'"{action}"' in text] == []


def test_an_object_is_found_by_the_class_that_it_extends() -> None:
    class Wide(Well):
        pass

    wide = Wide()
    made = Made(Store(MemoryEngine()).ids, 1, wide)
    assert made.get(Wide) is made.get(Well) is wide
    with pytest.raises(KeyError):
        made.get(Store)


def test_scopes_are_known_without_the_parts() -> None:
    assert set(Names.__annotations__) <= set(SCOPES)
    code = "import sys, onceward.tokens; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    for module in (b"store", b"engine", b"parts", b"locks"):
        assert b"'onceward." + module not in loaded


def test_a_scope_that_no_capability_declares_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="no capability declares the scope 'sned'"):
        DEVELOPER.may("sned", "orders")
