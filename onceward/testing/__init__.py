"""Public test tools: engine certification, fault injection, virtual time and the simulator.

- `run_virtual`, `VirtualLoop`, `VirtualClock`: time that advances when all tasks wait.
- `FaultEngine`: an engine that fails according to a plan.
- `certify_engine`: certifies an engine against the contract with one call.
- `simulate`, `simulate_many`, `Scenario`: whole nodes with faults from one seed, checked by an
  independent model. `Handlers` is the scenario for an application's handlers, `Outcome` the result
  of a run, and `violated` reports a broken guarantee.
- `onceward.testing.locks`: uses of locks that record each step, and a checker of such histories.
- `onceward.testing.disk` and `onceward.testing.power`, for the SQLite engine: a disk on which every
  system call can fail, and power cuts at any of them.
- `onceward.testing.postgres` and `onceward.testing.proxy`, for the PostgreSQL engine: a server to
  start and crash, and a network that cuts connections at chosen moments.
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
