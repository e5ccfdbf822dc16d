"""What proves Onceward, and what is built on it: public, and used by nothing above.

- `run_virtual`, `VirtualLoop`, `VirtualClock`: time that jumps when everyone waits.
- `FaultEngine`: an engine that goes wrong by plan.
"""

from onceward.testing.clock import Process, Stuck, VirtualClock, VirtualLoop, run_virtual
from onceward.testing.faults import FaultEngine, LocalFaultEngine
from onceward.testing.plan import Chance, Fault, Plan, Script, Step

__all__ = [
    "Chance",
    "Fault",
    "FaultEngine",
    "LocalFaultEngine",
    "Plan",
    "Process",
    "Script",
    "Step",
    "Stuck",
    "VirtualClock",
    "VirtualLoop",
    "run_virtual",
]
