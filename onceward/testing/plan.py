"""Fault plans: the faults of a `FaultEngine` and their times."""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, Literal, NamedTuple

from onceward.errors import BadInput

CallKind = Literal["get", "scan", "commit", "sweep", "watch"]


class Fault(StrEnum):
    """The faults of a single call."""

    CONFLICT = "conflict injected"
    UNAVAILABLE = "unavailable"
    LOST_REQUEST = "request lost"
    """The commit never arrives; the caller gets an unknown outcome."""
    LOST_ANSWER = "answer lost"
    """The commit is decided, and possibly applied; the caller gets no response."""
    LATE = "commit late"
    """The caller gets no response, and queries the outcome; then the commit arrives."""
    CRASH_BEFORE = "crash before applying"
    CRASH_AFTER = "crash after applying"
    """The commit is applied, but on a local engine not yet durable."""
    CRASH_ANSWER = "crash before the answer"
    """The commit is durable, and the caller dies before the response."""
    DEAF = "hints lost"
    """A watch that never gives hints."""


CRASHES: Final = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.CRASH_ANSWER)
LOSSES: Final = (Fault.LOST_REQUEST, Fault.LOST_ANSWER, Fault.LATE)
COMMIT_FAULTS: Final = (Fault.CONFLICT, Fault.UNAVAILABLE, *LOSSES, *CRASHES)
READ_FAULTS: Final = (Fault.UNAVAILABLE, Fault.CRASH_BEFORE, Fault.CRASH_ANSWER)
_MEANT_FOR: Final[Mapping[CallKind, tuple[Fault, ...]]] = {
    "get": READ_FAULTS,
    "scan": READ_FAULTS,
    "sweep": READ_FAULTS,
    "commit": COMMIT_FAULTS,
    "watch": (Fault.DEAF,),
}


class Step(NamedTuple):
    """The course of one call."""

    fault: Fault | None = None
    request_s: float = 0
    """The time until the call takes effect."""
    answer_s: float = 0
    """The time until the response arrives, or until the caller stops waiting for it."""
    late_s: float = 0
    """The time from the call until a `LATE` commit arrives."""


class Plan(ABC):
    """Decides the faults call by call."""

    @abstractmethod
    def step(self, kind: CallKind) -> Step:
        """The course of the next call, which is of this kind."""


class Script(Plan):
    """Given faults at given calls; calls of the given kinds are counted from 1."""

    def __init__(
        self, steps: Mapping[int, Fault | Step], kinds: Sequence[CallKind] = ("commit",)
    ) -> None:
        self._steps = dict(steps)
        self._kinds = tuple(kinds)
        self._number = 0

    def step(self, kind: CallKind) -> Step:
        if kind not in self._kinds:
            return Step()
        self._number += 1
        step = self._steps.get(self._number, Step())
        if isinstance(step, Fault):
            step = Step(step)
        if step.fault is not None and step.fault not in _MEANT_FOR[kind]:
            raise BadInput(f"a {kind} cannot have the fault {step.fault!r}")
        return step


class Chance(Plan):
    """Random faults: each kind has a rate per call, and every call takes some time.

    A call travels `latency_s` on average each way, and one in fifty up to `slow_s`. Plans with
    equal arguments and equally seeded `random` make equal decisions.
    """

    def __init__(
        self,
        random: random.Random,
        rates: Mapping[Fault, float],
        *,
        latency_s: float = 0.002,
        slow_s: float = 2.0,
    ) -> None:
        self.rates = dict(rates)
        self.latency_s = latency_s
        self.slow_s = slow_s
        self.allow: Callable[[Fault], bool] | None = None
        """May forbid a fault that was drawn."""
        self._random = random

    def calm(self) -> None:
        """Stop all faults and slow calls."""
        self.rates.clear()
        self.slow_s = 0

    def step(self, kind: CallKind) -> Step:
        draw = self._random.random()
        fault = None
        for candidate in _MEANT_FOR[kind]:
            draw -= self.rates.get(candidate, 0)
            if draw < 0:
                if self.allow is None or self.allow(candidate):
                    fault = candidate
                break
        request_s, answer_s, late_s = self._travel_s(), self._travel_s(), 0.0
        if fault is Fault.LATE:
            # Half of them arrive before their outcome is queried.
            late_s, answer_s = (
                self._random.random() * self.slow_s,
                self._random.random() * self.slow_s,
            )
        return Step(fault, request_s, answer_s, late_s)

    def _travel_s(self) -> float:
        chance = self._random.random()
        if chance < 0.02:
            return self._random.random() * self.slow_s
        return chance * 2 * self.latency_s
