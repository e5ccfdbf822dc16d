"""Onceward: once, in order, on time.

A coordination backend for applications that many people and unreliable senders
use at the same time. Everything is records, a schedule and a log, changed only
by atomic commits.
"""

__version__ = "0.1.0"
