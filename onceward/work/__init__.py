"""Jobs: the inbox, queues, handlers, attempts, steps, leases and results."""
