"""Proof for an application without a scenario: outcomes with faults equal those without.

`Proof` describes what is simulated, `prove` runs seeds, and `replay` repeats a failing run. For the
command line, see `onceward simulate`.

The model: the application runs on one or two nodes. Messages are lost, repeated and reordered.
Nodes crash at each commit, between two lines, and after a response; they pause for longer than
leases; wall clocks jump. Commits conflict, are late, and their responses are lost. HTTP calls fail
before they arrive, or their response is lost. Jobs get the events that they wait for, if values are
given. An operator settles jobs in doubt as the services
know them, and redrives jobs whose attempts are exhausted. Outcomes are final records, rooms,
timers, jobs with their results, and effects on HTTP services. Each outcome must equal that of some
run without faults, in which the messages are handled one after the other.

Not simulated: effects within the process, such as module variables; files, other databases and
other protocols than HTTP; time spent in plain functions; damaged disks; webhook calls of timers.
Recurring jobs do not run. Pauses before retries and leases of jobs are shortened.
"""

from onceward.testing.proof.messages import Message, read_jobs
from onceward.testing.proof.search import Difference, Proof, Totals, prove
from onceward.testing.proof.tests import replay, write_test
from onceward.testing.simulation.run import SimulationFailed

__all__ = [
    "Difference",
    "Message",
    "Proof",
    "SimulationFailed",
    "Totals",
    "prove",
    "read_jobs",
    "replay",
    "write_test",
]
