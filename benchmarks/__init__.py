"""Benchmarks: the limits of this machine, the performance of Onceward on it, and comparisons.

`make bench` and `make bench-peers` (`python -m benchmarks`) run other systems alternately with
Onceward, with the same harness. `make bench-local` (`python -m benchmarks.local`) compares Onceward
with the limits of the machine.
"""
