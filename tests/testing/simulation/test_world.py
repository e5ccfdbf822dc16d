import asyncio

import pytest

from onceward.errors import BadInput, Unavailable
from onceward.testing.simulation.history import Violation
from onceward.testing.simulation.weather import Weather
from onceward.testing.simulation.world import World
from tests.testing.simulation.toy import Greeting


def world(scenario=Greeting, mode="shared", servers=2, seed=1, **weather) -> World:
    return World(scenario(), seed, mode, servers, Weather(**weather))


@pytest.mark.parametrize("mode", ["shared", "local"])
def test_in_a_calm_world_every_call_has_one_answer_and_nothing_goes_wrong(mode):
    calm = world(mode=mode, servers=1, delay_s=0)
    history = calm.run()
    assert len(history.calls) == 12
    assert {len(call.answers) for call in history.calls} == {1}
    assert sum(history.values("count").values()) == 12
    assert set(calm.counts) <= {"conflict", "function run again", "message reordered"}


def test_a_client_asks_again_when_a_message_or_a_node_is_lost():
    lossy = world(drop=0.4, duplicate=0.4, slow_delay_s=3, gaps_s={"crash": 0.3})
    history = lossy.run()
    assert all(call.answers for call in history.calls)
    assert lossy.counts["message dropped"] > 0
    assert lossy.counts["message duplicated"] > 0
    assert lossy.counts["message reordered"] > 0
    assert lossy.counts["crash at random"] > 0
    assert lossy.counts["restart"] >= lossy.counts["crash at random"] - 2


def test_a_paused_node_finds_its_messages_when_it_resumes():
    class Patient(Greeting):
        clients = operations = (1, 1)

        async def start(self, node):
            node.spawn(self._stop(node))

        async def _stop(self, node):
            node.process.pause()
            # Not in the process: a paused one cannot wake itself up.
            resumer = node._world.later
            resumer(100, node.resume)
            resumer(101, node.resume)

    paused = world(Patient, servers=1, lasts_s=500)
    history = paused.run()
    assert history.calls[0].returned_ns > 100 * 10**9


@pytest.mark.parametrize("mode", ["shared", "local"])
def test_callers_that_hang_up_and_clocks_that_jump_do_no_harm(mode):
    gaps_s = {"hang_up": 0.1, "set_wall_clock": 0.1}
    rough = world(mode=mode, servers=1, latency_s=0.1, gaps_s=gaps_s)
    rough.run()
    assert rough.counts["caller hung up"] > 0
    assert rough.counts["wall clock set ahead"] > 0
    assert rough.counts["wall clock set back"] > 0


def test_a_local_node_that_crashes_takes_along_what_was_not_durable():
    gone = 0
    for seed in range(5):
        fragile = world(mode="local", servers=1, seed=seed, sync_s=2, gaps_s={"crash": 0.3})
        fragile.run()
        gone += fragile.counts["unsynced commit gone in a crash"]
    assert gone > 0


def test_a_node_may_die_just_after_its_answer():
    fragile = world(mode="local", servers=1, last_answer=0.3)
    fragile.run()
    assert fragile.counts["crash after an answer"] > 0


def test_an_error_that_allows_a_retry_leaves_the_client_waiting():
    class Shy(Greeting):
        refused = False

        async def handle(self, node, message):
            if not self.refused:
                self.refused = True
                raise Unavailable("not now")
            return await super().handle(node, message)

    shy = world(Shy)
    shy.run()
    assert any("fails" in line and "engine_unreachable" in line for line in shy.trace.lines)


@pytest.mark.parametrize("error", [BadInput("never"), ValueError("a bug")])
def test_any_other_error_ends_the_run(error):
    class Wrong(Greeting):
        async def handle(self, node, message):
            raise error

    with pytest.raises(type(error)):
        world(Wrong).run()


def test_background_work_that_fails_ends_the_run():
    class Wrong(Greeting):
        async def start(self, node):
            async def work():
                raise ValueError("in the background")

            node.spawn(work())

    with pytest.raises(ValueError, match="in the background"):
        world(Wrong).run()


def test_a_client_that_fails_ends_the_run():
    class Wrong(Greeting):
        async def client(self, client):
            await client.call(self.request(client.random))
            raise ValueError("a client")

    with pytest.raises(ValueError, match="a client"):
        world(Wrong).run()


def test_a_task_that_fails_unnoticed_ends_the_run():
    class Wrong(Greeting):
        async def handle(self, node, message):
            async def work():
                raise ValueError("unnoticed")

            task = asyncio.create_task(work())
            await asyncio.wait([task])
            return await super().handle(node, message)

    with pytest.raises(ValueError, match="unnoticed"):
        world(Wrong).run()


def test_a_call_that_never_gets_an_answer_is_a_violation():
    class Mute(Greeting):
        async def handle(self, node, message):
            raise Unavailable("never")

    with pytest.raises(Violation, match="c0-1") as found:
        world(Mute, lasts_s=1).run()
    assert found.value.kind == "stuck"


def test_what_never_settles_is_a_violation():
    class Busy(Greeting):
        async def handle(self, node, message):
            answer = await super().handle(node, message)
            node.serving[f"{message.id}, and on"] = asyncio.get_running_loop().create_future()
            return answer

    with pytest.raises(Violation) as found:
        world(Busy, lasts_s=1).run()
    assert found.value.kind == "stuck"


def test_a_world_goes_on_for_a_while_when_all_is_calm_if_a_scenario_wants_that():
    class Calm(Greeting):
        calm_s = 50.0

        def judge(self, history):
            super().judge(history)
            history.seen["judged"] += 1

    calm = world(Calm, slow_s=1, gaps_s={"crash": 0.3}, lasts_s=1)
    history = calm.run()
    assert calm.counts["judged"] == 1
    # A call under way may take twice what is slow, and a server two seconds to start.
    assert history.calm_ns == pytest.approx((1 + 2 + 2.01) * 1e9)
    assert calm.loop.time_ns() >= history.calm_ns + 50 * 10**9
    assert all(server.node is not None and server.node.calm for server in calm.servers)


def test_the_judge_is_told_what_nodes_tell():
    class Talking(Greeting):
        clients = operations = (1, 1)

        async def handle(self, node, message):
            token = node.token(message)
            node.tell("token", token)
            return await super().handle(node, message)

    history = world(Talking, servers=1).run()
    assert [(n.node, n.topic, n.body) for n in history.notes] == [("a.1", "token", "c0-1@a.1:2")]
