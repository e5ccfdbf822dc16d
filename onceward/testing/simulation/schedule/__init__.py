"""The scenario for the schedule: jobs and workers, checked after every commit.

`jobs` is the scenario: clients send, and every node runs a whole service node with workers.
`workers` claim and complete, and fail, forget, dawdle and come too late. `replay` follows each
job through the commits of the run, `slots` the nodes and their shares; both read the records
as they stand there, and share no code with the schedule.
"""

from onceward.testing.simulation.schedule.jobs import Jobs

__all__ = ["Jobs"]
