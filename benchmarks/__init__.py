"""Benchmarks: what this machine can do, what we do on it, and how others compare.

`make bench` and `make bench-peers` (`python -m benchmarks`) run others in turns with ours, by the
same frame. `make bench-local` (`python -m benchmarks.local`) runs ours against the limits of the
machine.
"""
