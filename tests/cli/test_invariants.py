"""Every kind of record belongs to a part, and `onceward check` judges all of them."""

from collections.abc import Iterator

import msgspec
import pytest

from onceward import keys
from onceward.cli.invariants import PARTS, RULES
from onceward.engine.base import Record
from onceward.keys import Key
from onceward.tables.records import Head, Lane

ID = "01M7000000000000000000000000"
NONSENSE = b'[["no sense"]]'


def rows() -> Iterator[tuple[str, str]]:
    """The kinds of records by the table of keys, each with what its sort key is."""
    assert keys.__doc__ is not None
    body = keys.__doc__.split("=\n")[2]
    for line in body.splitlines():
        partition, sort = line[:12].strip(), line[12:43].strip()
        if partition.strip("=") and sort:
            yield partition.partition("#")[0], sort


# A key for every row of the table.
KEYS: dict[tuple[str, str], Key] = {
    ("attempt", "attempt id"): ("attempt#00", ID),
    ("config", "schedule"): ("config", "schedule"),
    ("config", "format"): ("config", "format"),
    ("config", "server_key"): ("config", "server_key"),
    ("apikey", "digest"): ("apikey", "0f"),
    ("session", "caller#id"): ("session", "c#s"),
    ("node", "name"): ("node", "one"),
    ("slot", "slot"): ("slot", "0000"),
    ("due", "due_ms#id#…#kind"): ("due#0000", keys.join(1, ID, "odd")),
    ("ready", "rank#ready_ms#id"): ("ready#0000#q", keys.join(1, 1, ID)),
    ("line", "number"): ("line#0000#q#k", keys.number(1)),
    ("order", "queue#key"): ("order#0000", "q#k"),
    ("job", "id#job"): ("job#0000", f"{ID}#job"),
    ("job", "id#lease"): ("job#0000", f"{ID}#lease"),
    ("job", "id#steps"): ("job#0000", f"{ID}#steps"),
    ("lock", "name#head"): ("lock#0000", "l#head"),
    ("lock", "name#hold#token"): ("lock#0000", keys.join("l", "hold", 1)),
    ("lock", "name#wait#number"): ("lock#0000", keys.join("l", "wait", 1)),
    ("ask", "request"): (f"ask#0000#{ID}", "request"),
    ("ask", "id"): ("ask#0000", ID),
    ("fence", "slot"): ("fence", "0000"),
    ("gate", "resource"): ("gate#00", "printer"),
    ("limit", "queue#key"): ("limit#00", "q#k"),
    ("parked", "priority#number"): ("parked#q#k", keys.join(1, 1)),
    ("permit", "number"): ("permit#q", keys.number(1)),
    ("rate", "queue"): ("rate", "q"),
    ("dead", "ended_ms#id"): ("dead#q", keys.join(1, ID)),
    ("queue", "queue"): ("queue", "q"),
    ("inbox", "caller#key"): ("inbox#00#q", "c#k"),
    ("timer", "caller#id"): ("timer#0000", "c#t"),
    ("endpoint", "caller#id"): ("endpoint", "c#e"),
    ("suspended", "caller"): ("suspended", "c"),
    ("rooms", "id"): ("rooms", "r"),
    ("room", "info"): ("room#r", "info"),
    ("room", "head"): ("room#r", "head"),
    ("roomlog", "number"): ("roomlog#r#e", keys.number(1)),
    ("roomsnap", "number#piece"): ("roomsnap#r#e", keys.join(1, 0)),
    ("tables", "id"): ("tables", "t"),
    ("table", "info"): ("table#t", "info"),
    ("table", "head"): ("table#t", "head"),
    ("stand", "user"): ("stand#t#e", "ann"),
    ("alive", "user"): ("alive#t#e", "ann"),
    ("lane", "lane#wait#number"): ("lane#t#e", keys.join("l", "wait", 1)),
    ("lane", "lane#block#number"): ("lane#t#e", keys.join("l", "block", 1)),
    ("lane", "lane#group#number"): ("lane#t#e", keys.join("l", "group", 1)),
    ("rating", "user"): ("rating#l", "ann"),
    ("ladder", "rank#user"): ("ladder#l", keys.join(1, "ann")),
    ("match", "head"): ("match#m", "head"),
    ("match", "log#number"): ("match#m", keys.join("log", 1)),
    ("playing", "place"): ("playing", "p"),
    ("hub", "node"): ("hub", "one"),
    ("probe", "application"): ("probe", "app"),
    ("clock", "last"): ("clock", "last"),
    ("u", "sort key"): ("u#accounts", "ann"),
}
# What an application stores may be any JSON.
ANY = {("u", "sort key")}
# Of a table that is not there, what its partitions hold is being removed.
LEFT_OVER = {("stand", "user"), *(row for row in KEYS if row[0] == "lane")}


def problems(record: Record, *others: Record) -> list[str]:
    known = {one.key: one for one in (record, *others)}
    found: list[str] = []
    for rule in RULES:
        if rule.kind == keys.kind_of(record.key[0]):
            found += rule.judge(record, known.get)
    return found


def test_every_kind_of_record_has_an_invariant() -> None:
    kinds = {kind for part in PARTS for kind in part.kinds}
    assert kinds == {kind for kind, _ in rows()}
    assert set(KEYS) == set(rows()), "each row of the table of keys has an example here"


def test_parts_have_names_and_due_kinds_of_their_own() -> None:
    names = [part.name for part in PARTS]
    due = [kind for part in PARTS for kind in part.due]
    assert len(set(names)) == len(names)
    assert len(set(due)) == len(due)


@pytest.mark.parametrize("row", [row for row in KEYS if row not in LEFT_OVER | ANY], ids="-".join)
def test_a_value_that_makes_no_sense_is_reported(row: tuple[str, str]) -> None:
    try:
        found = problems(Record(KEYS[row], NONSENSE, 1))
    except Exception as error:  # which the check reports, too
        found = [repr(error)]
    assert found


@pytest.mark.parametrize("row", sorted(LEFT_OVER), ids="-".join)
def test_nonsense_at_a_table_that_is_there_is_reported(row: tuple[str, str]) -> None:
    value = msgspec.json.encode(Head("e", lanes={"l": Lane(2)}))
    head = Record(("table#t", "head"), value, 1)
    assert problems(Record(KEYS[row], NONSENSE, 1), head)


def test_settings_that_nobody_knows_are_reported() -> None:
    assert problems(Record(("config", "odd"), b"1", 1)) == [
        "there is no such setting of a database"
    ]
    assert problems(Record(("room#r", "odd"), b"1", 1)) == ["rooms have no such record"]
    assert problems(Record(("job#0000", f"{ID}#odd"), b"1", 1)) == ["jobs have no such record"]
