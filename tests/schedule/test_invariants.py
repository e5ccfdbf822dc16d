"""The rules find what does not fit together."""

from typing import Any

import msgspec
import pytest

from onceward.engine.base import Record
from onceward.keys import Key
from onceward.schedule import job_key
from onceward.schedule.invariants import RULES
from onceward.store.transaction import Transaction
from tests.quick import START_MS
from tests.schedule.jobs import Jobs, all_records, new_jobs, problems


async def change(jobs: Jobs, key: Key, value: Any) -> None:
    async def fn(tx: Transaction) -> None:
        if value is None:
            tx.delete(key)
        else:
            tx.put(key, value)

    await jobs.store.run(fn)


async def every_stage() -> Jobs:
    """Jobs in every stage, with leases renewed, moved and left over."""
    jobs = await new_jobs()
    for n in range(3):
        await jobs.send(n, queue="ordered", order_key="k")
    await jobs.complete(await jobs.claimed(queue="ordered"))
    await jobs.send(due_ms=START_MS + 90_000)
    for _ in range(5):
        await jobs.send()
    await jobs.complete(await jobs.claimed())
    await jobs.fail(await jobs.claimed(), None)
    await jobs.fail(await jobs.claimed(), START_MS + 60_000)
    claim = await jobs.claimed(lease_ms=1_000)
    await jobs.extend(claim, 5_000)
    await jobs.pass_ms(1_000)
    await jobs.claimed()
    return jobs


async def test_sound_records_break_no_rule() -> None:
    assert problems((await every_stage()).engine) == []


async def test_whatever_record_is_missing_some_rule_is_broken() -> None:
    records = all_records((await every_stage()).engine)
    kinds = [key[0].partition("#")[0] for key in records]
    assert set(kinds) == {"job", "due", "ready", "line", "order", "failed"}
    unnoticed = []
    for number, record in enumerate(records.values()):
        jobs = await every_stage()
        await change(jobs, list(all_records(jobs.engine))[number], None)
        if not problems(jobs.engine):
            unnoticed.append((kinds[number], msgspec.json.decode(record.value)))
    # A job that has ended stands nowhere, and the entry of a renewed lease may have moved.
    jobs_unnoticed = [value["stage"] for kind, value in unnoticed if kind == "job"]
    assert sorted(jobs_unnoticed) == ["succeeded", "succeeded"]
    assert [value for kind, value in unnoticed if kind != "job"] == ["lease"]


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        (("ready#0000#q", "x"), "no id", "job 'no id' not found"),
        (("ready#0000#q", "x"), 7, "job 7 not found"),
        (("line#0000#q#k", "x"), "0" * 29, "not found"),
        (("due#0000", f"{1:016d}#{'0' * 29}#job"), "job", "not found"),
        (("order#0000", "q#x"), {"head": "0" * 29}, "no job at its head"),
        (("order#0000", "q#x"), 1, "no job at its head"),
        (("job#0000", f"{'0' * 29}#job"), 1, "not a job"),
        (
            ("job#0000", f"{'0' * 29}#job"),
            {"queue": "q", "body": 1, "stage": "odd", "created_ms": 1},
            "not a job",
        ),
    ],
)
async def test_a_record_that_makes_no_sense_is_found(key: Key, value: Any, says: str) -> None:
    jobs = await every_stage()
    await change(jobs, key, value)
    [problem] = problems(jobs.engine)
    assert says in problem


async def test_an_entry_of_a_kind_that_the_schedule_does_not_know_is_none_of_its_business() -> None:
    jobs = await every_stage()
    await change(jobs, ("due#0000", f"{1:016d}#x#timer"), 1)
    assert problems(jobs.engine) == []


async def test_a_head_that_another_claims_to_be_is_found() -> None:
    jobs = await new_jobs()
    first, second = [await jobs.send(order_key="k") for _ in range(2)]
    job = await jobs.get(second)
    await change(jobs, ("order#0000", "q#k"), {"head": second, "next": 1, "waiting": 0})
    found = problems(jobs.engine)
    assert any(job_key(first)[1] in problem for problem in found)
    assert any("is not the head of its order key" in problem for problem in found)
    assert job.stage == "blocked"


ID, OTHER = "0" * 26 + "00A", "1" * 26 + "00A"
JOB: Key = ("job#0010", f"{ID}#job")
HEAD: Key = ("order#0010", "q#k")
PERMIT: Key = ("permit#q", "0000000000000003")
DEDUPE: Key = ("inbox#00#q", "#k")

# Where a job stands, by its stage, and what stands there.
ENTRIES: dict[str, tuple[Key, Any]] = {
    "due": (("due#0010", f"0000000000000050#{ID}#job"), "job"),
    "running": (("due#0010", f"0000000000000050#{ID}#lease"), "lease"),
    "ready": (("ready#0010#q", f"5#{ID}"), ID),
    "blocked": (("line#0010#q#k", "0000000000000001"), ID),
    "parked": (("parked#q#k", "5#0000000000000001"), ID),
    "failed": (("failed#q", f"0000000000000050#{ID}"), "failed"),
    "in_doubt": (("failed#q", f"0000000000000050#{ID}"), "in_doubt"),
}
STAGES = [*ENTRIES, "succeeded", "cancelled"]
ENDED = ("failed", "in_doubt", "succeeded", "cancelled")


def job(stage: str, **changes: Any) -> dict[str, Any]:
    sound: dict[str, Any] = {"queue": "q", "body": 1, "stage": stage, "created_ms": 1}
    if stage in ENTRIES:
        sound["place"] = ENTRIES[stage][0][1]
    if stage == "blocked":
        sound["options"] = {"order_key": "k"}
    if stage == "parked":
        sound["options"] = {"limit_key": "k"}
    options = {**sound.get("options", {}), **changes.pop("options", {})}
    return {**sound, "options": options, **changes}


def sound(stage: str, **changes: Any) -> dict[Key, Any]:
    """A job in that stage, and all that belongs to it."""
    values: dict[Key, Any] = {JOB: job(stage, **changes)}
    if stage in ENTRIES:
        key, value = ENTRIES[stage]
        values[key] = value
    order_key = values[JOB].get("options", {}).get("order_key")
    if order_key is not None and stage not in ENDED:
        values[HEAD] = {"head": OTHER if stage == "blocked" else ID}
    if stage == "blocked":  # whoever is at the head
        place = f"5#{OTHER}"
        values["job#0010", f"{OTHER}#job"] = job("ready", options={"order_key": "k"}, place=place)
        values["ready#0010#q", place] = OTHER
    return values


def judged(values: dict[Key, Any]) -> list[str]:
    """What the rules say of these records."""
    records = {key: Record(key, msgspec.json.encode(value), 1) for key, value in values.items()}
    return [
        problem
        for key, record in records.items()
        for rule in RULES
        if rule.kind == key[0].partition("#")[0]
        for problem in rule.judge(record, records.get)
    ]


@pytest.mark.parametrize("stage", STAGES)
def test_a_job_stands_where_its_stage_says(stage: str) -> None:
    assert judged(sound(stage)) == []
    assert judged(sound(stage, options={"order_key": "k"})) == []


@pytest.mark.parametrize("stage", ENTRIES)
def test_a_job_that_stands_nowhere_is_found(stage: str) -> None:
    place, _ = ENTRIES[stage]
    values = sound(stage)
    del values[place]
    says = f"the job's stage is {stage}, but its entry in {place[0]}/{place[1]} is missing"
    assert judged(values) == [says]


@pytest.mark.parametrize("entry", [stage for stage in ENTRIES if stage != "running"])
def test_an_entry_of_a_job_in_another_stage_is_found(entry: str) -> None:
    key, value = ENTRIES[entry]
    for stage in STAGES:
        # As if its entry had not gone with its stage.
        found = judged({**sound(stage), JOB: job(stage, place=key[1]), key: value})
        says = f"job {ID} should not have an entry here: its stage is {stage}"
        assert (says in found) == (stage != entry)


@pytest.mark.parametrize("stage", [stage for stage in ENTRIES if stage != "running"])
def test_a_second_entry_of_a_job_is_found(stage: str) -> None:
    (partition, sort), value = ENTRIES[stage]
    second = (partition, sort.replace("5", "6").replace("1", "2"))
    if stage in ("blocked", "parked"):
        second = (partition, sort + "2")
    found = judged({**sound(stage), second: value})
    assert found == [f"job {ID} should not have an entry here: its stage is {stage}"]


def test_a_lease_that_was_left_over_is_sound_as_long_as_there_is_a_job() -> None:
    key, value = ENTRIES["running"]
    for stage in STAGES:
        assert judged({**sound(stage), key: value}) == []
    assert judged({key: value}) == [f"job {ID!r} not found"]


def test_a_lease_that_was_renewed_may_stand_anywhere() -> None:
    renewed = {("job#0010", f"{ID}#lease"): {"token": "t", "until_ms": 9}}
    assert judged({JOB: job("running"), **renewed}) == []
    assert len(judged({JOB: job("ready"), **renewed})) == 1


@pytest.mark.parametrize(
    ("sort", "named"), [("job", ""), ("lease", ""), ("x#job", "job"), ("x#y#z#lease", "y")]
)
def test_a_due_entry_that_names_no_job_is_found(sort: str, named: str) -> None:
    assert judged({("due#0010", sort): 1}) == [f"job {named!r} not found"]


@pytest.mark.parametrize(
    ("entry", "values"),
    [
        (("parked#q#x", "5"), {JOB: job("parked", options={"limit_key": None}, place="5")}),
        (("line#0010#q#x", "5"), {JOB: job("blocked", options={"order_key": None}, place="5")}),
    ],
)
def test_a_job_without_a_key_that_stands_in_its_line_is_found(
    entry: Key, values: dict[Key, Any]
) -> None:
    stage = values[JOB]["stage"]
    found = judged({**values, entry: ID})
    assert f"job {ID} should not have an entry here: its stage is {stage}" in found


def test_an_entry_among_failed_jobs_that_says_something_else_is_found() -> None:
    key, _ = ENTRIES["failed"]
    for value in ("succeeded", "", 5, None):
        found = judged({JOB: job("succeeded"), key: value})
        assert found == ["not an entry of a failed job"]


@pytest.mark.parametrize("stage", STAGES)
def test_only_a_job_that_goes_on_or_blocks_is_the_head_of_its_order_key(stage: str) -> None:
    values = {**sound(stage, options={"order_key": "k"}), HEAD: {"head": ID}}
    found = judged(values)
    says = f"job {ID} is not the head of its order key: its stage is {stage}"
    assert (says in found) == (stage in ("blocked", "succeeded", "cancelled"))
    assert judged(
        {**sound(stage), JOB: job(stage, options={"order_key": "other"}), HEAD: {"head": ID}}
    )


def test_a_job_without_an_order_key_is_no_head() -> None:
    found = judged({**sound("ready"), ("order#0010", "q#x"): {"head": ID}})
    assert found == [f"job {ID} is not the head of its order key: its stage is ready"]


@pytest.mark.parametrize("stage", STAGES)
def test_a_job_that_has_not_ended_needs_a_head(stage: str) -> None:
    values = sound(stage, options={"order_key": "k"})
    values.pop(HEAD, None)
    says = f"the job's stage is {stage}, which contradicts the head of its order key"
    assert (says in judged(values)) == (stage not in ENDED)
    assert (says in judged({**values, HEAD: 5})) == (stage not in ENDED)


def test_a_permit_belongs_to_a_job_that_is_worked_on() -> None:
    assert judged({**sound("running", permit=3), PERMIT: ID}) == []
    idle = f"job {ID!r} has a permit but is not running"
    assert judged({PERMIT: ID}) == [idle]
    assert judged({**sound("running"), PERMIT: ID}) == [idle]
    assert judged({**sound("ready", permit=3), PERMIT: ID}) == [idle]
    other = ("permit#q", "0000000000000004")
    found = judged({**sound("running", permit=3), PERMIT: ID, other: ID})
    assert found == [f"job {ID!r} has another permit"]


def test_a_permit_that_is_not_there_is_found() -> None:
    found = judged(sound("running", permit=3))
    assert found == ["the record of the job's permit 3 is missing"]


def test_a_dedupe_key_leads_to_a_job_until_that_has_ended() -> None:
    accepted = {"id": ID, "fingerprint": "f"}
    assert judged({**sound("ready"), DEDUPE: accepted}) == []
    assert judged({**sound("succeeded"), DEDUPE: {**accepted, "state": "succeeded"}}) == []
    assert judged({DEDUPE: {**accepted, "state": "succeeded"}}) == []
    assert judged({DEDUPE: accepted}) == [f"job {ID!r} not found"]
    assert judged({DEDUPE: {"id": ID}}) == ["not a record of an idempotency key"]
