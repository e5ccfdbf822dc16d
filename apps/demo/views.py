"""The state for the landing page."""

from typing import Literal

import msgspec

from apps.demo.book import Counts
from apps.demo.storm import View as StormView
from apps.demo.traffic import Yours

Mood = Literal["good", "plain", "bad"]
Killed = Literal["", "worker", "server"]


class Event(msgspec.Struct):
    """An event with its time."""

    number: int
    at_ms: int
    text: str
    mood: Mood


class Beat(msgspec.Struct, array_like=True):
    """The counts of one second."""

    acknowledged: int
    in_effect: int
    killed: Killed


class Machines(msgspec.Struct):
    """The state of the processes."""

    server_starts: int
    server_kills: int
    away_ms: float
    """The last downtime of the server."""
    workers: int
    workers_up: int
    worker_kills: int


class State(msgspec.Struct):
    """The whole state."""

    token: str
    now_ms: int
    traffic: bool
    tenfold: bool
    waiting: int
    """Sends without a response yet."""
    machines: Machines
    orders: Counts
    timers: Counts
    late_ms: float | None
    """The median lateness of the last timers."""
    late_ms_max: float | None
    yours: list[Yours]
    storm: StormView
    beats: list[Beat]
    events: list[Event]
