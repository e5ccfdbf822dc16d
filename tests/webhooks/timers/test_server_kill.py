"""A server is killed while it fires timers: each is fired, and a call that was cut off, and no
other, is made again under the same id."""

from collections import defaultdict
from pathlib import Path
from random import Random

import pytest

from onceward.clock import Clock
from tests.observe.figures import show
from tests.server_process import ServerProcess
from tests.webhooks.sink import Sink, fill, statuses

pytestmark = [pytest.mark.timers, pytest.mark.timeout(2700)]

PER_KILL = 200


async def test_every_timer_is_fired_and_only_what_was_cut_off_is_called_again(
    tmp_path: Path, soak: bool
) -> None:
    kills, random, clock = 50 if soak else 5, Random(), Clock()
    (tmp_path / "onceward.toml").write_text(
        "webhook_timeout_s = 4\nwebhook_attempts = 1000\nwebhook_calls = 100\n"
    )
    server = ServerProcess(tmp_path, "--app", "tests.webhooks.timers_app:app")
    calls: dict[str, list[tuple[int, str]]] = defaultdict(list)
    """Of each timer: how many kills came before a call, and its id."""
    answered: dict[str, int] = {}
    """Of each timer whose answer is recorded: how many kills came before that."""
    async with Sink(tmp_path, "slow") as sink:
        count, seen, due_ms = PER_KILL * (kills + 1), 0, clock.now_ms()
        timers = [(f"timer-{number}", sink.urls[0], due_ms) for number in range(count)]
        await fill(server.database, timers)
        for number in range(kills + 1):
            with server:
                if number < kills:
                    # Anywhere in its share of the calls, and a moment later.
                    await sink.until(int((number + random.random()) * PER_KILL))
                    await clock.sleep(random.uniform(0, 0.05))
                    server.kill()
                else:
                    # What was cut off comes again when its lease is over.
                    await sink.until(seen + count - len(answered))
                    assert server.stop() == 0
            requests = await sink.heard()
            for request in requests[seen:]:
                calls[request.timer].append((number, request.id))
            seen = len(requests)
            waiting = calls.keys() - answered.keys()
            for id_, status in (await statuses(server.database, waiting)).items():
                if status == "success":
                    answered[id_] = number
    assert len(answered) == len(calls) == count, "a timer was not fired, or its call not answered"
    for id_, made in calls.items():
        assert len({job_id for _, job_id in made}) == 1, f"{id_} was called under several ids"
        rounds = [number for number, _ in made]
        assert len(set(rounds)) == len(rounds), f"a call of {id_} was repeated, but not cut off"
        assert answered[id_] == rounds[-1], f"{id_} was called again though it was answered"
    cut_off = seen - count
    assert cut_off, "nothing was cut off"
    show("kills", {"timers": count, "kills": server.kills, "cut off": cut_off}, {}, soak)
