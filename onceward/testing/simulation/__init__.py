"""The simulator: whole nodes from one seed, checked by independent models.

`simulate(Scenario, seed=7)` creates a world: servers with separate clocks, one database, clients,
and a network that delays, reorders, duplicates and drops messages. Nodes crash at every point of a
commit and at random moments, restart, and pause for longer than their leases. Their wall clocks are
changed. The database reports conflicts, is unavailable, loses responses, and applies commits
late. All of it, including the order of callbacks, is drawn from the seed and happens in virtual
time: the same seed gives the same run.

The code under test is the real one: `Store`, `Transaction`, `Clock` and `Ids`, and the code that a
scenario runs on them. Checks use only responses, commits and the final records, and share no code
with it.

To test your own code, derive from `Scenario` as its docstring describes:

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

A failure names its seed and the call that replays it. `simulate_many` also fails if some kind of
fault never occurred in its runs. From the command line:
`python -m onceward.testing.simulate --scenario schedule --seeds 10000 --jobs 2`.

Modules: `scenario` has the class to derive from, and `world` runs it. `weather` decides on faults,
`network` and `database` carry them out. `history` is the input of checks, `linear` checks
registers for linearizability, and `run` has the public functions. `core` is the scenario for the
store, `schedule` the one for jobs and the nodes that divide them.
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
