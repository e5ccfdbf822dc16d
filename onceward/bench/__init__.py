"""Benchmarks: what this machine can do, what we do on it, and how others compare.

`onceward bench` runs ours against the limits of the machine. In the repository, `make bench` and
`make bench-peers` run others in turns with ours, by the same frame.
"""
