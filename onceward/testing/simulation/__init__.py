"""The simulator: whole nodes from one seed, checked by independent models.

`simulate(Scenario, seed=7)` makes a world: servers with clocks of their own, one database,
clients, and a network that delays, reorders, duplicates and drops. Nodes crash at every
point of a commit and at random moments, start again, stand still for longer than their
leases, and have their wall clocks set; the database conflicts, is away, loses answers, and
applies commits that were given up on. All of it, the order of every callback included, is
drawn from the seed and happens in virtual time: the same seed is the same run.

The code under test is the real one: `Store`, `Transaction`, `Clock` and `Ids`, and whatever
a scenario runs on them. Judged is only what was told, what was committed, and what stands in
the database in the end, by code that shares nothing with it.

To put code of your own to the test, derive from `Scenario`; its docstring says how:

    class Greeting(Scenario):
        def request(self, random):
            return random.choice(["Ann", "Bob"])

        async def handle(self, node, message):
            async def greet(tx):
                key = ("greeting", message.id)
                if await tx.get(key) is None:            # once per message
                    count = (await tx.get(("count", message.request)) or 0) + 1
                    tx.put(("count", message.request), count)
                    tx.put(key, count)
                return await tx.get(key)

            return await node.run(greet)

        def judge(self, history):
            for name, count in history.values("count").items():
                asked = [call for call in history.calls if call.request == name]
                if sorted(call.answer for call in asked) != list(range(1, count + 1)):
                    violated("miscounted", f"{name}: {asked}")

    simulate_many(Greeting, range(1000))

A failure names its seed and the call that replays it. `simulate_many` also fails if some
kind of fault never happened in its runs. From the command line:
`python -m onceward.testing.simulate --scenario schedule --seeds 10000 --jobs 2`.

Where things are: `scenario` is the class to derive from, `world` runs it, `weather` decides
what goes wrong, `network` and `database` carry it out, `history` is what a judge sees,
`linear` decides whether a register was linearizable, and `run` is the way in. `core` is the
scenario that judges the store itself, `schedule` the one for jobs and the nodes that divide
them among themselves.
"""

from onceward.testing.simulation.history import (
    Applied,
    Call,
    History,
    Span,
    Violation,
    check_real_time,
    check_unique,
    violated,
)
from onceward.testing.simulation.network import Client, Message
from onceward.testing.simulation.run import (
    Report,
    SimulationFailed,
    Summary,
    simulate,
    simulate_many,
)
from onceward.testing.simulation.scenario import Combined, Scenario
from onceward.testing.simulation.weather import Weather
from onceward.testing.simulation.world import Node

__all__ = [
    "Applied",
    "Call",
    "Client",
    "Combined",
    "History",
    "Message",
    "Node",
    "Report",
    "Scenario",
    "SimulationFailed",
    "Span",
    "Summary",
    "Violation",
    "Weather",
    "check_real_time",
    "check_unique",
    "simulate",
    "simulate_many",
    "violated",
]
