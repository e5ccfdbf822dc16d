"""Real processes that share a PostgreSQL are killed, paused and stopped while they work."""

from collections import Counter
from random import Random

import pytest

from tests.schedule.office import LEASE_S, Office

pytestmark = pytest.mark.cluster

# A node that is missed, not one that took leave, is given up after a lease; and it has said that
# it lives four times in that.
AT_ONCE_S = 0.75 * LEASE_S
SOME, WITHIN_MS = 200, 2_000


async def trouble(office: Office, tally: Counter[str]) -> float:
    """One process is paused, one killed, one stopped in good order, while three work.

    Returns how long it took to hand over what the last one had.
    """
    while len(office.alive) < 3:
        await office.start()
    await office.placed()
    await office.send(SOME, WITHIN_MS)
    tally["stale"] += await office.pause(office.random.choice(office.alive))
    tally["pauses"] += 1
    await office.placed()
    await office.send(SOME, WITHIN_MS)
    await office.kill(office.random.choice(office.alive))
    tally["kills"] += 1
    await office.placed()
    await office.start()
    await office.placed()
    await office.send(SOME, WITHIN_MS)
    tally["stops"] += 1
    return await office.stop(office.random.choice(office.alive))


async def test_every_job_is_effective_once_and_in_order_while_processes_die_and_freeze(
    url: str, soak: bool
) -> None:
    jobs, left = (100_000, 10_000) if soak else (2_000, 2_000)
    tally: Counter[str] = Counter()
    took_s: list[float] = []
    async with Office(url, Random()) as office:
        await office.send(jobs, 120_000 if soak else 6_000)
        await office.start()
        await office.placed()
        # Again, if a process that was paused had nothing in hand at that moment.
        while not tally["stale"] or office.waiting > left:
            took_s.append(await trouble(office, tally))
        assert len(office.alive) == 2
        await office.finished()
        await office.placed()
        await office.judge()
    print(
        f"\n{len(office.sent)} jobs by {len(office.clerks)} processes, {dict(tally)}, handed over "
        f"in {max(took_s):.2f} s at the most, late by {office.late_ms_max / 1e3:.1f} s, "
        f"{office.contended} claims contended"
    )
    assert max(took_s) < AT_ONCE_S
