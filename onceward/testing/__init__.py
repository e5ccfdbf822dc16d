"""Public test tools: engine certification, fault injection, virtual time and the simulator.

- `run_virtual`, `VirtualLoop`, `VirtualClock`: time that jumps when everyone waits.
- `FaultEngine`: an engine that goes wrong by plan.
- `certify_engine`: one call that certifies an engine against the contract.
- `simulate`, `simulate_many`, `Scenario`: whole nodes from one seed, with everything going
  wrong, judged by an independent model. `Handlers` is the scenario of an application's handlers,
  `Outcome` what came of a run, and `violated` reports that something must not be so.
- `onceward.testing.locks`: uses of locks that note each step, and a judge of such histories.
- `onceward.testing.disk` and `onceward.testing.power`, for the SQLite engine: a disk on which
  every system call can fail, and power cuts at any of them.
- `onceward.testing.postgres` and `onceward.testing.proxy`, for the PostgreSQL engine: a
  server to start and to crash, and a network that cuts connections at chosen moments.
"""

from onceward.testing.certify import NotCertified, certify_engine
from onceward.testing.clock import Process, Stuck, VirtualClock, VirtualLoop, run_virtual
from onceward.testing.faults import FaultEngine, LocalFaultEngine
from onceward.testing.plan import Chance, Fault, Plan, Script, Step
from onceward.testing.simulation import (
    Scenario,
    SimulationFailed,
    simulate,
    simulate_many,
    violated,
)
from onceward.testing.simulation.handlers import Handlers, Outcome

__all__ = [
    "Chance",
    "Fault",
    "FaultEngine",
    "Handlers",
    "LocalFaultEngine",
    "NotCertified",
    "Outcome",
    "Plan",
    "Process",
    "Scenario",
    "Script",
    "SimulationFailed",
    "Step",
    "Stuck",
    "VirtualClock",
    "VirtualLoop",
    "certify_engine",
    "run_virtual",
    "simulate",
    "simulate_many",
    "violated",
]
