"""What the landing page is shown."""

from typing import Literal

import msgspec

from apps.demo.book import Counts
from apps.demo.storm import View as StormView
from apps.demo.traffic import Yours

Mood = Literal["good", "plain", "bad"]
Killed = Literal["", "worker", "server"]


class Event(msgspec.Struct):
    """Something that has happened."""

    number: int
    at_ms: int
    text: str
    mood: Mood


class Beat(msgspec.Struct, array_like=True):
    """A second."""

    acknowledged: int
    in_effect: int
    killed: Killed


class Machines(msgspec.Struct):
    """The processes."""

    server_starts: int
    server_kills: int
    away_ms: float
    """How long the server was away the last time."""
    workers: int
    workers_up: int
    worker_kills: int


class State(msgspec.Struct):
    """How all of it goes."""

    token: str
    now_ms: int
    traffic: bool
    tenfold: bool
    waiting: int
    """Sends without an answer yet."""
    machines: Machines
    orders: Counts
    timers: Counts
    late_ms: float | None
    """How late timers came, in the middle of the last ones."""
    late_ms_max: float | None
    yours: list[Yours]
    storm: StormView
    beats: list[Beat]
    events: list[Event]
