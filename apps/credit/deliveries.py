"""Why notifications are repeated: the outcome of the last delivery of each.

Kept in memory, for the last notifications of this process. Deliveries whose acknowledgement cannot
have reached the sender in time are also recorded in the application's record (`unheard`), so that
other nodes and restarts have the cause.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Literal

from apps.credit import limits

Cause = Literal["acknowledged", "late", "closed", "early", "failed", "fields", "again", "unknown"]
"""Why a notification was repeated.

`acknowledged`: the last delivery was acknowledged in time; the sender ignored or lost that.
`late`: its acknowledgement took longer than the sender's timeout.
`closed`: the connection was closed before the acknowledgement.
`early`: the last delivery was still being handled.
`failed`: the response was a fault.
`fields`: a new notification, with other fields.
`again`: a new notification, with the same fields.
`unknown`: received by another node, or by this one before a restart.
"""
Outcome = Literal["acknowledged", "late", "closed", "failed"]


def outcome_of(took_s: float, closed: bool) -> Outcome:
    """The outcome of a stored delivery: responses on closed connections and late ones do not
    arrive."""
    if closed:
        return "closed"
    return "late" if took_s > limits.ACK_S_MAX else "acknowledged"


class Deliveries:
    """The last delivery of each notification."""

    def __init__(self, most: int = limits.DELIVERIES_KEPT_MAX) -> None:
        self._most = most
        self._last: OrderedDict[tuple[str, str], Outcome | int] = OrderedDict()
        """The outcome, or the start time while the delivery is running."""

    def begin(self, organisation: str, ids: Iterable[str], now_ns: int) -> dict[str, Cause]:
        """Record the start of deliveries. Returns the causes of repeated ones."""
        causes: dict[str, Cause] = {}
        for id_ in ids:
            last = self._last.pop((organisation, id_), None)
            if isinstance(last, str):
                causes[id_] = last
            elif last is not None:
                waited_s = (now_ns - last) / 1e9
                causes[id_] = "late" if waited_s > limits.ACK_S_MAX else "early"
            self._last[organisation, id_] = now_ns
        while len(self._last) > self._most:
            self._last.popitem(last=False)
        return causes

    def end(
        self, organisation: str, ids: Iterable[str], outcome: Outcome, begun_ns: int
    ) -> set[str]:
        """Record the outcome of deliveries that began at `begun_ns`. Returns those that were
        repeated during that time: the other delivery may have been stored first."""
        overlapped = set()
        for id_ in ids:
            last = self._last.get((organisation, id_))
            if last is not None:
                self._last[organisation, id_] = outcome
                if last != begun_ns:
                    overlapped.add(id_)
        return overlapped

    def __len__(self) -> int:
        return len(self._last)
