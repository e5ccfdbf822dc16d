"""Records stay readable: changes to stored structs and keys are compatible, or need a format."""

import copy
import json
import re
from typing import Annotated, Any

import msgspec
import pytest

from onceward.engine.memory import MemoryEngine
from onceward.ids import Ids
from onceward.job_options import JobOptions
from onceward.keys import Key
from onceward.parts import Kind, all_kinds
from onceward.schedule import Job, Schedule, job_key
from onceward.store import Store
from onceward.store.transaction import Transaction
from scripts import records

SLOT = 25  # of the order key a#1 in the queue q
COMMITTED = json.loads(records.FILE.read_text(encoding="utf-8"))


class Part(msgspec.Struct, array_like=True):
    number: int
    text: str = ""


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    a: int = 0


class Record(msgspec.Struct, omit_defaults=True):
    name: str
    count: Annotated[int, msgspec.Meta(extra={"ignored": True})] = 0
    parts: list[Part] = []
    strict: Strict = Strict()
    choice: "One | Other | None" = None


class One(msgspec.Struct, tag="one"):
    a: int


class Other(msgspec.Struct, tag="other"):
    b: int = 0


BEFORE = {
    "": "object sparse",
    ".name": "str, required",
    ".count": "int = 0",
    ".parts": "list = []",
    ".parts[]": "array",
    ".parts[][0]": "int number, required",
    ".parts[][1]": "str text, optional",
    ".strict": 'strict object = {"a":0}',
    ".strict.a": "int, optional",
    ".choice": "none | object type=one | object type=other = null",
    ".choice<one>.a": "int, required",
    ".choice<other>.b": "int, optional",
}


def layout(lines: dict[str, str]) -> records.Layout:
    return {"format": 1, "due": ["job"], "keys": ["k k"], "records": {"k {id}": lines}}


def test_records_are_laid_out_as_committed() -> None:
    found = records.layout()
    assert found == COMMITTED, "run `make records`; " + "; ".join(
        records.incompatible(COMMITTED, found)
    )


def test_the_layout_of_a_record_has_all_its_values() -> None:
    assert records.lines(Record) == BEFORE


@pytest.mark.parametrize(
    "changed",
    [
        {".later": "int = 0"},
        {".later": "object = {}", ".later.a": "int, required"},
        {".count": None},
        {".parts": None, ".parts[]": None, ".parts[][0]": None, ".parts[][1]": None},
        {".parts[][2]": "int at_ms, optional"},
        {".choice<one>.c": "int, optional"},
    ],
    ids=str,
)
def test_a_field_with_a_default_can_be_added_or_removed(changed: dict[str, str | None]) -> None:
    assert records.incompatible(layout(BEFORE), layout(_changed(changed))) == []


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({".later": "int, required"}, "older records have no .later, which has no default"),
        ({".name": None}, "older nodes need .name, which is gone"),
        ({".name": None, ".title": 'str = ""'}, "older nodes need .name, which is gone"),
        ({".count": "float = 0.0"}, ".count was 'int = 0' and is 'float = 0.0'"),
        ({".count": "int = 1"}, ".count was 'int = 0' and is 'int = 1'"),
        ({".parts[][1]": None}, "older nodes need .parts[][1], which is gone"),
        ({".parts[][1]": "str reason, optional"}, ".parts[][1] was 'str text, optional'"),
        ({".strict.b": "int, optional"}, "older nodes reject .strict.b, which is new"),
        ({".strict.a": None}, "newer nodes reject .strict.a, which is gone"),
        ({"": "array"}, "the value was 'object sparse' and is 'array'"),
    ],
    ids=str,
)
def test_a_change_that_nodes_cannot_read_is_found(changed: dict[str, Any], why: str) -> None:
    [found] = records.incompatible(layout(BEFORE), layout(_changed(changed)))
    assert found.startswith(f"k {{id}}: {why}")


def test_records_keys_and_due_entries_that_are_gone_are_found() -> None:
    gone = {"format": 1, "due": [], "keys": [], "records": {}}
    assert len(records.incompatible(layout(BEFORE), gone)) == 3
    assert records.incompatible(gone, layout(BEFORE)) == []


def test_an_incompatible_change_is_written_only_with_a_new_format(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "records.json"
    old = copy.deepcopy(COMMITTED)
    old["records"]["job#{slot} {id}#job"][".gone"] = "int, required"
    text = json.dumps(old)
    monkeypatch.setattr(records, "FILE", file)
    file.write_text(text)
    assert records.main() == 1
    assert file.read_text() == text
    assert "increase FORMAT" in capsys.readouterr().err
    file.write_text(json.dumps({**old, "format": old["format"] - 1}))
    assert records.main() == 0
    assert json.loads(file.read_text()) == records.layout()


def _pattern(kind: Kind) -> re.Pattern[str]:
    texts = re.split(r"\{[^}]*\}", f"{kind.partition} {kind.sort}")
    return re.compile(".+".join(map(re.escape, texts)))


def test_every_kind_of_record_has_an_example_of_its_key() -> None:
    patterns = {_pattern(kind): f"{kind.partition} {kind.sort}" for kind in all_kinds()}
    shown = {
        text: {name for pattern, name in patterns.items() if pattern.fullmatch(text)}
        for text in COMMITTED["keys"]
    }
    # A due entry of a job has a part less, and a long idempotency key is a digest.
    unmatched = [text for text, names in shown.items() if not names]
    assert [text.partition("#")[0] for text in unmatched] == ["due", "inbox"]
    assert set().union(*shown.values()) == set(patterns.values())


async def _stored() -> tuple[Store, str]:
    store = Store(await MemoryEngine().open())
    schedule = Schedule(Ids(lambda: 0))
    id_ = await store.run(lambda tx: schedule.send(tx, "q", {"a": 1}, due_ms=10**15))
    return store, id_


async def test_jobs_of_an_order_key_are_in_the_slot_where_older_nodes_look() -> None:
    store, schedule = Store(await MemoryEngine().open()), Schedule(Ids(lambda: 0), slots=64)
    id_ = await store.run(lambda tx: schedule.send(tx, "q", None, JobOptions(order_key="a#1")))
    assert id_[-3:] == f"{SLOT:03x}"


async def test_an_older_node_reads_past_a_new_field_and_drops_it_when_it_writes() -> None:
    store, id_ = await _stored()
    key: Key = job_key(id_)

    async def add_field(tx: Transaction) -> None:
        tx.put(key, {**await tx.get(key), "later": 1})

    await store.run(add_field)
    schedule = Schedule(Ids(lambda: 0))
    assert (await store.run(lambda tx: schedule.get(tx, id_))).body == {"a": 1}
    await store.run(lambda tx: schedule.move(tx, id_, 2 * 10**15))
    found = await store.run(lambda tx: tx.get(key))
    assert "later" not in found
    assert msgspec.convert(found, Job).due_ms == 2 * 10**15


def _changed(changed: dict[str, str | None]) -> dict[str, str]:
    after = {**BEFORE, **changed}
    return {path: text for path, text in after.items() if text is not None}
