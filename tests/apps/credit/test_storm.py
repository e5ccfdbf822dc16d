"""The storm: whatever is repeated, killed, paused and refused, there is one pull for each."""

import asyncio
from pathlib import Path

import pytest

from apps.credit.application import Application, key_of
from apps.credit.sender import opportunity
from apps.credit.storm import ORGANISATION, Course, Plan, Storm
from onceward.app import App
from onceward.errors import BadInput, OncewardError
from onceward.store.transaction import Transaction

ACK_S_MAX = 1.0
# With keys, and without. Small ones are quick where they may be: with keys several pulls at once,
# and without fewer, since a worker makes one at a time.
SENT = {"times": 20, "senders": 2, "kills": 2, "pauses": 1, "lease_s": 0.6, "patience_s": 240}
TENTH = [
    Plan(**SENT, applications=20, workers=2, concurrency=4),
    Plan(**SENT, applications=12, workers=3, keys=False),
]
WHOLE = [
    Plan(applications=200, times=20, senders=4, workers=8, kills=20, pauses=10, keys=keys)
    for keys in (True, False)
]


async def blow(plan: Plan, url: str, folder: Path) -> Course:
    folder.mkdir()
    course = await Storm(plan, url, folder).run()
    kind = "with keys" if plan.keys else "without keys"
    print(
        f"{kind}: {plan.applications} applications in {course.acknowledged} notifications and "
        f"{course.envelopes} envelopes, all acknowledged, the slowest in {course.slowest_s:.3f} s; "
        f"{course.kills} workers killed, {course.pauses} paused; {course.pulled.asked} requests "
        f"to the bureau, {course.pulled.refused} refused, {course.pulled.lost} answers lost; "
        f"{course.pulled.done} pulls, {course.doubts} in doubt; {course.told.results} results, "
        f"{course.told.repeated} of them told again; repeats by cause: {course.causes}"
    )
    return course


@pytest.mark.credit
@pytest.mark.timeout(2_700)
async def test_there_is_one_pull_for_each_application_whatever_happens(
    url: str, tmp_path: Path, soak: bool
) -> None:
    storms = [
        blow(plan, f"{url}_{number}", tmp_path / f"{number}")
        for number, plan in enumerate(WHOLE if soak else TENTH)
    ]
    if soak:  # one after the other: so that what is slow is so for its own sake
        courses = [await storm for storm in storms]
        assert max(course.slowest_s for course in courses) < ACK_S_MAX
        assert not any(course.unacknowledged or course.fallen for course in courses)
    else:
        courses = await asyncio.gather(*storms)
    for course in courses:
        assert course.violations() == []


async def test_a_database_that_has_seen_a_storm_is_not_waited_for(tmp_path: Path) -> None:
    # Only one process may have such a database: the storm is over before its workers begin.
    storm = Storm(TENTH[0], f"sqlite:///{tmp_path}/credit.db", tmp_path)
    app = App(f"sqlite:///{tmp_path}/credit.db", slots=8)

    async def seen(tx: Transaction) -> None:
        id_ = opportunity(0)
        tx.put(key_of(ORGANISATION, id_), Application(id_, ORGANISATION, {"Id": id_}, [], []))

    async with app:
        await app.run(seen)
    with pytest.raises(BadInput, match="use another"):
        await storm.run()


async def test_a_process_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(OncewardError, match=r"server has exited: .*nonsense"):
        await Storm(TENTH[0], "nonsense://", tmp_path).run()


def test_what_goes_wrong_is_told() -> None:
    course = Course(Plan(applications=2, times=4, kills=1, pauses=0, keys=False))
    course.kills, course.decided, course.told.results = 1, 2, 6
    course.acknowledged = 8
    course.accepted, course.repeats, course.causes = 2, 7, {"acknowledged": 6, "closed": 1}
    course.pulled.done, course.pulled.most = 2, 1
    assert course.violations() == []
    course.pulled.most = 2
    assert course.violations() == ["an application was pulled 2 times"]
    course.pulled.most, course.doubts = 1, 2
    assert course.violations() == ["2 cases were in doubt after 1 deaths"]
    course.doubts, course.told.twice = 1, 1
    assert course.violations() == ["1 results had two ids or changed"]
    course.told.twice, course.acknowledged = 0, 7
    assert course.violations() == ["1 notifications were not acknowledged"]
    course.acknowledged, course.decided = 8, 1
    assert course.violations() == ["1 applications were not decided"]
    course.decided, course.pulled.done = 2, 3
    assert course.violations() == ["there were 3 pulls for 2 applications"]
    course.pulled.done, course.accepted = 2, 3
    assert course.violations() == ["3 of 2 applications were counted"]
    course.accepted, course.causes = 2, {"acknowledged": 6, "unknown": 1}
    assert len(course.violations()) == 1
    course.causes = {"acknowledged": 6}
    assert course.violations() == ["7 repeats, but causes {'acknowledged': 6}"]
    course.repeats = 5
    assert course.violations() == ["5 repeats, but causes {'acknowledged': 6}"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"applications": 0},
        {"senders": 0},
        {"workers": 0},
        {"times": 3, "senders": 4},
        {"times": 5, "senders": 2},
        {"kills": -1},
        {"lease_s": 0.0},
        {"lease_s": float("nan")},
        {"lease_s": float("inf")},
        {"lease_s": 0.01},
        {"pull_leases": 0.0},
        {"failing": 1.0},
        {"concurrency": 0},
        {"concurrency": 2, "keys": False},
    ],
    ids=str,
)
def test_a_storm_that_cannot_be_is_refused_by_the_options_that_say_so(
    wrong: dict[str, float],
) -> None:
    with pytest.raises(BadInput) as refused:
        Plan(**wrong)  # type: ignore[arg-type]
    for name in wrong:
        option = "--no-keys" if name == "keys" else f"--{name.replace('_', '-')}"
        assert option in refused.value.message
