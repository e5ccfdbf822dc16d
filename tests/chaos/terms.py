"""What servers, workers and the auditor agree on."""

LEASE_S = 2.0
"""Of nodes, of jobs and of locks: whoever is stopped is stopped for longer."""
EFFECTS, ORDERS = "chaos-effect", "chaos-order"
"""The partitions where effects are counted."""
LOCKS = ("north", "south", "west")
