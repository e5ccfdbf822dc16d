"""Alarms: conditions of a node that need an operator's attention.

An alarm has a fixed code, a message and the time since which it holds. `/readyz`, `/metrics`,
the console and the log read the same list.
"""

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

from onceward import limits

DAMAGED_RECORDS = "damaged_records"

logger = logging.getLogger("onceward.alarms")


class Alarm(NamedTuple):
    """An active alarm."""

    code: str
    message: str
    since_ms: int


class Alarms:
    """The alarms of one node by code. Codes are constants, so there are few. An alarm that several
    things can have at the same time, such as outboxes, has a name for each one as well."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self._held: dict[tuple[str, str], Alarm] = {}
        self._codes: dict[str, None] = {}
        self._damaged: dict[object, str] = {}

    def raise_(self, code: str, message: str, name: str = "") -> None:
        """Raise an alarm, or update its message. Logs one line if either is new. Idempotent."""
        held = self._held.get((code, name))
        if held is not None and held.message == message:
            return
        self._codes[code] = None
        self._held[code, name] = Alarm(code, message, held.since_ms if held else self.now_ms())
        logger.error("alarm %s: %s", code, message)

    def clear(self, code: str, name: str = "") -> None:
        """End an alarm. Logs one line if it was raised. Idempotent."""
        if self._held.pop((code, name), None) is not None:
            logger.warning("alarm %s: cleared%s", code, name and f" ({name})")

    def damaged(self, key: object, why: str) -> None:
        """Raise the alarm for an unreadable record, and log one line for each. The alarm is active
        until the node restarts."""
        if key in self._damaged or len(self._damaged) >= limits.DAMAGED_KEYS_MAX:
            return
        self._damaged[key] = why
        first, reason = next(iter(self._damaged.items()))
        last = "" if len(self._damaged) == 1 else f" The last one is {key!a}: {why}."
        self.raise_(
            DAMAGED_RECORDS,
            f"{len(self._damaged)} damaged records found. The first one is {first!a}: {reason}."
            f"{last} Run `onceward db check`, and restore a backup.",
        )

    def reset(self) -> None:
        """Remove all alarms after the node has stopped."""
        self._held.clear()
        self._damaged.clear()
        self._codes.clear()

    def gauges(self) -> dict[str, int]:
        """For each code raised since the start, 1 if the alarm is active, else 0."""
        return {code: int(self.get(code) is not None) for code in self._codes}

    def get(self, code: str) -> Alarm | None:
        """The first alarm with a code."""
        return next((alarm for alarm in self if alarm.code == code), None)

    def __iter__(self) -> Iterator[Alarm]:
        return iter(tuple(self._held.values()))
