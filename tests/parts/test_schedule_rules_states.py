"""The rules judge a job by its state: where it stands, what it holds, and who is at the head."""

from typing import Any

import msgspec
import pytest

from onceward.engine.base import Record
from onceward.keys import Key
from onceward.parts.schedule.rules import RULES

ID, OTHER = "0" * 26 + "00A", "1" * 26 + "00A"
JOB: Key = ("job#0010", f"{ID}#job")
HEAD: Key = ("order#0010", "q#k")
PERMIT: Key = ("permit#q", "0000000000000003")
DEDUPE: Key = ("inbox#00#q", "#k")

# Where a job stands, by its state, and what stands there.
ENTRIES: dict[str, tuple[Key, Any]] = {
    "due": (("due#0010", f"0000000000000050#{ID}#job"), "job"),
    "leased": (("due#0010", f"0000000000000050#{ID}#lease"), "lease"),
    "ready": (("ready#0010#q", f"5#{ID}"), ID),
    "waiting": (("line#0010#q#k", "0000000000000001"), ID),
    "parked": (("parked#q#k", "5#0000000000000001"), ID),
    "dead": (("dead#q", f"0000000000000050#{ID}"), "dead"),
    "doubt": (("dead#q", f"0000000000000050#{ID}"), "doubt"),
}
STATES = [*ENTRIES, "done", "cancelled"]
ENDED = ("dead", "doubt", "done", "cancelled")


def job(state: str, **changes: Any) -> dict[str, Any]:
    sound = {"queue": "q", "body": 1, "state": state, "made_ms": 1}
    if state in ENTRIES:
        sound["place"] = ENTRIES[state][0][1]
    if state == "waiting":
        sound["order_key"] = "k"
    if state == "parked":
        sound["limit_key"] = "k"
    return {**sound, **changes}


def sound(state: str, **changes: Any) -> dict[Key, Any]:
    """A job in that state, and all that belongs to it."""
    values: dict[Key, Any] = {JOB: job(state, **changes)}
    if state in ENTRIES:
        key, value = ENTRIES[state]
        values[key] = value
    order_key = values[JOB].get("order_key")
    if order_key is not None and state not in ENDED:
        values[HEAD] = {"head": OTHER if state == "waiting" else ID}
    if state == "waiting":  # whoever is at the head
        place = f"5#{OTHER}"
        values["job#0010", f"{OTHER}#job"] = job("ready", order_key="k", place=place)
        values["ready#0010#q", place] = OTHER
    return values


def problems(values: dict[Key, Any]) -> list[str]:
    """What the rules say of these records."""
    records = {key: Record(key, msgspec.json.encode(value), 1) for key, value in values.items()}
    return [
        problem
        for key, record in records.items()
        for rule in RULES
        if rule.kind == key[0].partition("#")[0]
        for problem in rule.judge(record, records.get)
    ]


@pytest.mark.parametrize("state", STATES)
def test_a_job_stands_where_its_state_says(state: str) -> None:
    assert problems(sound(state)) == []
    assert problems(sound(state, order_key="k")) == []


@pytest.mark.parametrize("state", ENTRIES)
def test_a_job_that_stands_nowhere_is_found(state: str) -> None:
    place, _ = ENTRIES[state]
    values = sound(state)
    del values[place]
    says = f"the job is {state}, but does not stand in {place[0]}/{place[1]}"
    assert problems(values) == [says]


@pytest.mark.parametrize("entry", [state for state in ENTRIES if state != "leased"])
def test_an_entry_of_a_job_in_another_state_is_found(entry: str) -> None:
    key, value = ENTRIES[entry]
    for state in STATES:
        # As if its entry had not gone with its state.
        found = problems({**sound(state), JOB: job(state, place=key[1]), key: value})
        says = f"the job {ID} does not stand here: it is {state}"
        assert (says in found) == (state != entry)


@pytest.mark.parametrize("state", [state for state in ENTRIES if state != "leased"])
def test_a_second_entry_of_a_job_is_found(state: str) -> None:
    (partition, sort), value = ENTRIES[state]
    second = (partition, sort.replace("5", "6").replace("1", "2"))
    if state in ("waiting", "parked"):
        second = (partition, sort + "2")
    found = problems({**sound(state), second: value})
    assert found == [f"the job {ID} does not stand here: it is {state}"]


def test_a_lease_that_was_left_over_is_sound_as_long_as_there_is_a_job() -> None:
    key, value = ENTRIES["leased"]
    for state in STATES:
        assert problems({**sound(state), key: value}) == []
    assert problems({key: value}) == [f"there is no job {ID!r}"]


def test_a_lease_that_was_renewed_may_stand_anywhere() -> None:
    renewed = {("job#0010", f"{ID}#lease"): {"token": "t", "until_ms": 9}}
    assert problems({JOB: job("leased"), **renewed}) == []
    assert len(problems({JOB: job("ready"), **renewed})) == 1


@pytest.mark.parametrize(
    ("sort", "named"), [("job", ""), ("lease", ""), ("x#job", "job"), ("x#y#z#lease", "y")]
)
def test_a_due_entry_that_names_no_job_is_found(sort: str, named: str) -> None:
    assert problems({("due#0010", sort): 1}) == [f"there is no job {named!r}"]


@pytest.mark.parametrize(
    ("entry", "values"),
    [
        (("parked#q#x", "5"), {JOB: job("parked", limit_key=None, place="5")}),
        (("line#0010#q#x", "5"), {JOB: job("waiting", order_key=None, place="5")}),
    ],
)
def test_a_job_without_a_key_that_stands_in_its_line_is_found(
    entry: Key, values: dict[Key, Any]
) -> None:
    state = values[JOB]["state"]
    found = problems({**values, entry: ID})
    assert f"the job {ID} does not stand here: it is {state}" in found


def test_an_entry_among_the_dead_that_says_something_else_is_found() -> None:
    key, _ = ENTRIES["dead"]
    for value in ("done", "", 5, None):
        found = problems({JOB: job("done"), key: value})
        assert found == ["this is not an entry of a dead job"]


@pytest.mark.parametrize("state", STATES)
def test_only_a_job_that_goes_on_or_blocks_is_the_head_of_its_order_key(state: str) -> None:
    values = {**sound(state, order_key="k"), HEAD: {"head": ID}}
    found = problems(values)
    says = f"the job {ID} is not its head: it is {state}"
    assert (says in found) == (state in ("waiting", "done", "cancelled"))
    assert problems({**sound(state), JOB: job(state, order_key="other"), HEAD: {"head": ID}})


def test_a_job_without_an_order_key_is_no_head() -> None:
    found = problems({**sound("ready"), ("order#0010", "q#x"): {"head": ID}})
    assert found == [f"the job {ID} is not its head: it is ready"]


@pytest.mark.parametrize("state", STATES)
def test_a_job_that_has_not_ended_needs_a_head(state: str) -> None:
    values = sound(state, order_key="k")
    values.pop(HEAD, None)
    says = f"the job is {state}, but the head of its order key says otherwise"
    assert (says in problems(values)) == (state not in ENDED)
    assert (says in problems({**values, HEAD: 5})) == (state not in ENDED)


def test_a_permit_belongs_to_a_job_that_is_worked_on() -> None:
    assert problems({**sound("leased", permit=3), PERMIT: ID}) == []
    idle = f"the job {ID!r} is not being worked on, but has a permit"
    assert problems({PERMIT: ID}) == [idle]
    assert problems({**sound("leased"), PERMIT: ID}) == [idle]
    assert problems({**sound("ready", permit=3), PERMIT: ID}) == [idle]
    other = ("permit#q", "0000000000000004")
    found = problems({**sound("leased", permit=3), PERMIT: ID, other: ID})
    assert found == [f"the job {ID!r} has another permit"]


def test_a_permit_that_is_not_there_is_found() -> None:
    found = problems(sound("leased", permit=3))
    assert found == ["the job has the permit 3, which is not there"]


def test_a_dedupe_key_leads_to_a_job_until_that_has_ended() -> None:
    accepted = {"id": ID, "fingerprint": "f"}
    assert problems({**sound("ready"), DEDUPE: accepted}) == []
    assert problems({**sound("done"), DEDUPE: {**accepted, "state": "done"}}) == []
    assert problems({DEDUPE: {**accepted, "state": "done"}}) == []
    assert problems({DEDUPE: accepted}) == [f"there is no job {ID!r}"]
    assert problems({DEDUPE: {"id": ID}}) == ["this is not the record of a dedupe key"]
