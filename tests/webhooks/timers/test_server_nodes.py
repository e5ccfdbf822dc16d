"""The number of nodes on PostgreSQL changes while timers wait: each is fired once and on time."""

from collections import Counter
from pathlib import Path

import pytest

from onceward.clock import Clock
from tests.observe.figures import lateness, show
from tests.server_process import ServerProcess
from tests.webhooks.sink import Sink, fill

pytestmark = [pytest.mark.timers, pytest.mark.timeout(2700)]


async def test_each_timer_fires_once_while_nodes_go_from_one_to_three_and_back(
    tmp_path: Path, url: str, soak: bool
) -> None:
    count, seconds = (100_000, 300) if soak else (2_000, 10)
    clock = Clock()
    nodes = []
    for number in range(3):
        folder = tmp_path / f"node{number}"
        folder.mkdir()
        nodes.append(ServerProcess(folder, "--database", url))
    async with Sink(tmp_path, "answer") as sink:
        began_ms = clock.now_ms()
        # The first one makes the schema, and the time that takes is not that of timers.
        with nodes[0]:
            nodes[0].stop()
        setting_ms = clock.now_ms() - began_ms
        start_ms = clock.now_ms() + 2 * setting_ms + (count // 2 if soak else 3_000)
        due = {f"t{n}": start_ms + n * seconds * 1_000 // count for n in range(count)}
        await fill(url, ((id_, sink.urls[0], due_ms) for id_, due_ms in due.items()))
        with nodes[0]:
            await sink.until(count // 5)
            with nodes[1], nodes[2]:
                await sink.until(3 * count // 5)
                assert nodes[1].stop() == nodes[2].stop() == 0
            await sink.until(count)
            assert nodes[0].stop() == 0
        heard = await sink.heard()
    assert Counter(request.timer for request in heard) == dict.fromkeys(due, 1)
    assert len({request.id for request in heard}) == count
    late_ms = [request.at_ms - due[request.timer] for request in heard]
    assert min(late_ms) >= -1, "one was fired early"
    figures = {"timers": count, "seconds": seconds, "late": lateness(late_ms)}
    show("nodes", figures, {"p99 under 1 s": figures["late"]["p99_ms"] < 1_000}, soak)
