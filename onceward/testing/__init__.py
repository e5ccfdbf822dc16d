"""Public test tools: engine certification, fault injection, virtual time and the simulator.

- The pytest plugin: the fixtures `onceward_app` (`TestApp`) and `onceward_sync_app` (`SyncTestApp`)
  run your application in memory on a virtual clock.
- `run_virtual`, `VirtualLoop`, `VirtualClock`: time that advances when all tasks wait.
- `FaultEngine`: an engine that fails according to a plan.
- `certify_engine`: certifies an engine against the contract with one call.
- `simulate`, `simulate_many`, `Scenario`: whole nodes with faults from one seed, checked by an
  independent model. `Handlers` is the scenario for an application's handlers, `Outcome` the result
  of a run, and `violated` reports a broken guarantee.
- `onceward.testing.proof`: outcomes of your application under faults equal those without, also as
  the command `onceward simulate`. It documents the faults, and what is not simulated.
- `onceward.testing.locks`: uses of locks that record each step, and a checker of such histories.
- `onceward.testing.disk` and `onceward.testing.power`, for the SQLite engine: a disk on which every
  system call can fail, and power cuts at any of them.
- `onceward.testing.postgres` and `onceward.testing.proxy`, for the PostgreSQL engine: a server to
  start and crash, and a network that cuts connections at chosen moments.
"""

from typing import TYPE_CHECKING

from onceward.lazy import lazy

if TYPE_CHECKING:
    from onceward.testing.app import DrainTimeout, Enqueued, SyncTestApp, TestApp
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
    "DrainTimeout",
    "Enqueued",
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
    "SyncTestApp",
    "TestApp",
    "VirtualClock",
    "VirtualLoop",
    "certify_engine",
    "run_virtual",
    "simulate",
    "simulate_many",
    "violated",
]

# Loaded on first use: the pytest plugin is in this package.
__getattr__ = lazy(
    __name__,
    {
        "Chance": "onceward.testing.plan",
        "DrainTimeout": "onceward.testing.app",
        "Enqueued": "onceward.testing.app",
        "Fault": "onceward.testing.plan",
        "FaultEngine": "onceward.testing.faults",
        "Handlers": "onceward.testing.simulation.handlers",
        "LocalFaultEngine": "onceward.testing.faults",
        "NotCertified": "onceward.testing.certify",
        "Outcome": "onceward.testing.simulation.handlers",
        "Plan": "onceward.testing.plan",
        "Process": "onceward.testing.clock",
        "Scenario": "onceward.testing.simulation",
        "Script": "onceward.testing.plan",
        "SimulationFailed": "onceward.testing.simulation",
        "Step": "onceward.testing.plan",
        "Stuck": "onceward.testing.clock",
        "SyncTestApp": "onceward.testing.app",
        "TestApp": "onceward.testing.app",
        "VirtualClock": "onceward.testing.clock",
        "VirtualLoop": "onceward.testing.clock",
        "certify_engine": "onceward.testing.certify",
        "run_virtual": "onceward.testing.clock",
        "simulate": "onceward.testing.simulation",
        "simulate_many": "onceward.testing.simulation",
        "violated": "onceward.testing.simulation",
    },
)
