"""Observability: counts, samples, senders, search and pages of lists."""
