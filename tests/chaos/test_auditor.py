"""The auditor finds what is wrong, and names it; and finds nothing where nothing is."""

from collections.abc import Callable

import pytest

from tests.chaos.auditor import Slack, audit
from tests.chaos.history import (
    Call,
    FencedWrite,
    Found,
    History,
    Line,
    Member,
    Message,
    Move,
    Order,
    Place,
    Still,
    Table,
    Timer,
    Use,
    Visit,
)

MS = 1_000_000
Change = Callable[[History, Found], object]


def good() -> tuple[History, Found]:
    """A small history with some of everything, as it should be."""
    room = {"maps": {"counts": {"ann": 3, "ben": 2}}, "lists": {"items": [["i", "ann"]]}}
    history = History(
        messages={
            "m": Message("m", {"job-m"}),
            "again": Message("again", {"job-again"}),
            "unheard": Message("unheard"),
            "line-1": Message("line-1", {"job-1"}, counted=False),
        },
        lines={"in": Line(3), "out": Line(2, inside=False)},
        calls=[
            Call("first", "m", "job-m", 10, 0),
            Call("first", "again", "job-again", 15, 0),
            Call("second", "m", "job-m", 20, 0),
            Call("first", "again", "job-again", 25, 0),  # it was cut off
            Call("second", "again", "job-again", 30, 0),
            Call("first", "again", "job-again", 35, 0, process=9),  # it stood still
            Call("order", "out", "job-o1", 1, 0, 1),
            Call("order", "out", "job-o2", 2, 0, 2),
            Call("order", "out", "job-o1", 3, 0, 1),  # by one who was stopped
        ],
        stills=[Still(9, 26, 34)],
        uses={
            "a": Use("lock", 0, 10 * MS, 1, 2_000 * MS, 500 * MS),
            "b": Use("lock", 20 * MS, 510 * MS, 2, 2_510 * MS),
            "c": Use("lock", 30 * MS, 2_600 * MS, 3, 4_600 * MS, 2_700 * MS),
            "d": Use("lock", 40 * MS),
        },
        writes=[
            FencedWrite("lock", "a", 1, 100 * MS),
            FencedWrite("lock", "c", 3, 2_650 * MS),
            FencedWrite("lock", "b", 2, 2_700 * MS, refused=True),  # it was stopped
        ],
        timers={
            "t": Timer(1_000, 500, 1_500),
            "off": Timer(1_000, 500, 1_500, cancelled=True),
            "every": Timer(1_000, 100, 1_100, repeats=True, cancelled=True),
            "untold": Timer(1_000, 500),
        },
        visits=[
            Visit("t", "job-t", 1_500, 1, 1_500),
            Visit("t", "job-t", 1_900, 1, 1_500),
            Visit("every", "job-e1", 1_101, 1, 1_100),
            Visit("every", "job-e2", 1_203, 2, 1_200),
        ],
        rooms={"room": {"ann": Member(3), "ben": Member(1, unknown=1)}},
        tables={
            "table": Table(
                2,
                {"ann": True, "ben": True, "cas": True, "dan": False},
                [Move("match", 0, "X", 2, True), Move("match", 1, "O", 1)],
                [{}, {"X": "ann"}, {"X": "ann", "O": "ben"}],
            )
        },
    )
    found = Found(
        jobs=dict.fromkeys(["job-m", "job-again", "job-1"], "succeeded"),
        effects={"m": 1, "again": 1, "unheard": 1},
        orders={"in": Order(4, 4)},
        timers={"t": "success", "off": "cancelled", "every": "cancelled"},
        rooms={"room": {"server": room, "ann": room, "ben": room}},
        places={
            "table": {
                "ann": Place("seated", "X"),
                "ben": Place("seated", "O"),
                "cas": Place("waiting", number=7, position=1),
                "dan": Place(""),
            }
        },
        logs={"match": [("X", 2), ("O", 1)]},
        held={"lock": 0},
    )
    return history, found


def test_a_good_history_is_found_good() -> None:
    assert audit(*good()) == []


WRONG: list[tuple[str, Change]] = [
    ("lost message", lambda h, f: f.jobs.pop("job-m")),
    ("not drained", lambda h, f: f.jobs.update({"job-m": "queued"})),
    ("doubled message", lambda h, f: h.messages["m"].ids.add("job-1")),
    ("lost effect", lambda h, f: f.effects.pop("m")),
    ("lost effect", lambda h, f: h.calls.pop(2)),
    ("doubled effect", lambda h, f: f.effects.update(m=2)),
    ("doubled effect", lambda h, f: f.effects.update(unheard=2)),
    ("doubled effect", lambda h, f: h.calls.append(Call("first", "m", "other", 5, 0))),
    ("made up", lambda h, f: f.effects.update(nobody=1)),
    ("step ran again", lambda h, f: h.calls.append(Call("first", "m", "job-m", 21, 0))),
    ("step ran again", lambda h, f: h.stills.clear()),
    ("step ran again", lambda h, f: setattr(h.stills[0], "process", 8)),
    ("step ran again", lambda h, f: setattr(h.stills[0], "from_ns", 31)),
    ("step skipped", lambda h, f: h.calls.pop(0)),
    ("overtaken", lambda h, f: f.orders["in"].wrong.append((1, 3))),
    ("overtaken", lambda h, f: h.calls.insert(0, Call("order", "out", "job-o2", 0, 0, 2))),
    ("lost message", lambda h, f: setattr(f.orders["in"], "last", 2)),
    ("lost message", lambda h, f: f.orders.clear()),
    ("lost message", lambda h, f: setattr(h.lines["out"], "acknowledged", 3)),
    ("doubled effect", lambda h, f: setattr(f.orders["in"], "count", 5)),
    ("doubled message", lambda h, f: h.calls.append(Call("order", "out", "other", 9, 0, 2))),
    ("stale token", lambda h, f: setattr(h.uses["b"], "token", 1)),
    ("stale token", lambda h, f: setattr(h.uses["c"], "token", 0)),
    ("stale token", lambda h, f: setattr(h.writes[2], "sent_ns", 2_400 * MS)),
    ("two holders", lambda h, f: setattr(h.uses["c"], "granted_ns", 2_400 * MS)),
    ("two holders", lambda h, f: setattr(h.uses["b"], "granted_ns", 400 * MS)),
    ("not drained", lambda h, f: f.held.update(lock=1)),
    ("early timer", lambda h, f: setattr(h.visits[0], "came_ms", 1_490)),
    ("early timer", lambda h, f: setattr(h.visits[3], "came_ms", 1_190)),
    ("early timer", lambda h, f: setattr(h.timers["t"], "due_ms", 1_400)),
    ("early timer", lambda h, f: setattr(h.timers["t"], "due_ms", 2_000)),  # it was moved
    ("lost timer", lambda h, f: [h.visits.pop(0), h.visits.pop(0)]),
    ("lost timer", lambda h, f: h.visits.pop(2)),
    ("doubled firing", lambda h, f: setattr(h.visits[1], "job", "other")),
    ("cancelled timer", lambda h, f: h.visits.append(Visit("off", "job-off", 1_600, 1, 1_500))),
    ("made up", lambda h, f: h.visits.append(Visit("no", "job", 0))),
    ("not drained", lambda h, f: f.timers.update(t="firing")),
    ("diverged room", lambda h, f: f.rooms["room"].update(ben={"maps": {}, "lists": {}})),
    ("lost room", lambda h, f: f.rooms.clear()),
    ("lost step", lambda h, f: setattr(h.rooms["room"]["ann"], "taken", 4)),
    ("doubled step", lambda h, f: setattr(h.rooms["room"]["ben"], "unknown", 0)),
    ("too many seated", lambda h, f: h.tables["table"].seen.append({"X": "a", "O": "b", "Y": "c"})),
    ("too many seated", lambda h, f: setattr(f.places["table"]["ben"], "marker", "X")),
    ("seated twice", lambda h, f: h.tables["table"].seen.append({"X": "ann", "O": "ann"})),
    ("lost place", lambda h, f: f.places["table"].pop("ann")),
    ("lost leave", lambda h, f: h.tables["table"].people.update(ann=False)),
    ("broken line", lambda h, f: setattr(f.places["table"]["cas"], "position", 2)),
    ("lost move", lambda h, f: f.logs.update(match=[])),
    ("lost move", lambda h, f: f.logs.update(match=[("X", 1), ("O", 1)])),
    ("doubled move", lambda h, f: f.logs["match"].append(("X", 2))),
    ("damaged", lambda h, f: f.problems.append("a page is damaged")),
]


@pytest.mark.parametrize(
    ("kind", "change"), WRONG, ids=[f"{n} {kind}" for n, (kind, _) in enumerate(WRONG)]
)
def test_what_is_wrong_is_named(kind: str, change: Change) -> None:
    history, found = good()
    change(history, found)
    assert kind in {violation.kind for violation in audit(history, found)}


def test_where_clocks_may_differ_a_lease_may_end_a_little_early() -> None:
    history, found = good()
    history.uses["c"].granted_ns = 2_400 * MS
    assert audit(history, found, Slack(lease_ns=200 * MS)) == []
    assert [one.kind for one in audit(history, found, Slack(lease_ns=100 * MS))] == ["two holders"]
