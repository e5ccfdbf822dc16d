"""Suppression of repeated log lines."""

from collections.abc import Callable, Hashable

from onceward import limits
from onceward.clock import boot_ns


class Repeats:
    """Suppresses repeated log lines: logs the first, then one with a count every minute."""

    def __init__(self, elapsed_ns: Callable[[], int] = boot_ns) -> None:
        self._elapsed_ns = elapsed_ns
        self._known: dict[Hashable, tuple[int, int]] = {}
        """The time of the last line and the number of suppressed ones since, by code."""

    def count(self, code: Hashable) -> int | None:
        """The number of suppressed lines of this code before; None if this one is suppressed. Above
        a number of codes, all are forgotten."""
        now_ns = self._elapsed_ns()
        told_ns, left_out = self._known.get(code, (None, 0))
        if told_ns is not None and now_ns - told_ns < limits.RATED_TOLD_S * 1e9:
            self._known[code] = told_ns, left_out + 1
            return None
        if len(self._known) >= limits.REPEATS_KEPT_MAX:
            self._known.clear()
        self._known[code] = now_ns, 0
        return left_out
