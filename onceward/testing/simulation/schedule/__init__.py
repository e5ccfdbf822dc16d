"""The scenario for the schedule: jobs and workers, checked after every commit.

`jobs` is the scenario: clients send jobs, and every node runs a whole service node with workers.
`workers` claim and complete jobs, and also fail, drop, delay and complete too late. `replay`
follows each job through the commits of the run, `slots` the nodes and their shares. Both read the
stored records, and share no code with the schedule.
"""

from onceward.testing.simulation.schedule.jobs import Jobs

__all__ = ["Jobs"]
