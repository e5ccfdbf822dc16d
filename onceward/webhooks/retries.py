"""Retry policies: how often a call is attempted, with which pauses, and how long one may take.

A timer, its endpoint and the server each may have one. What a timer leaves open its endpoint
decides, and what that leaves open the server.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from onceward import limits
from onceward.errors import BadInput

PAUSES_S = (5.0, 30.0, 120.0, 600.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0)
"""If neither timer nor endpoint specify them: 17 hours and 42 minutes in all, so that a receiver
that is replaced, or is down over night, misses nothing."""
ATTEMPTS = len(PAUSES_S) + 1
# A pause is varied by up to so much, so that calls that failed together do not return together.
_JITTER = 0.2
_MEMBERS = ("pauses_s", "attempts_max", "timeout_s")


class RetryPolicy(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """When a call that failed is attempted again. Members that are None are not specified."""

    pauses_ms: tuple[int, ...] | None = None
    """The pause after each failed attempt. The last one repeats if there are more attempts."""
    attempts_max: int | None = None
    """How many attempts there are; 0: no limit. By default one more than there are pauses."""
    timeout_ms: int | None = None
    """How long an attempt may take, the connection included."""

    @property
    def attempts(self) -> int | None:
        """How many attempts there are; 0: no limit, None: not specified."""
        if self.attempts_max is not None or self.pauses_ms is None:
            return self.attempts_max
        return len(self.pauses_ms) + 1

    def over(self, other: "RetryPolicy | None") -> "RetryPolicy":
        """This policy, with what it leaves open taken from another one."""
        if other is None:
            return self
        return RetryPolicy(
            other.pauses_ms if self.pauses_ms is None else self.pauses_ms,
            other.attempts if self.attempts is None else self.attempts,
            other.timeout_ms if self.timeout_ms is None else self.timeout_ms,
        )

    def is_last(self, attempt: int) -> bool:
        """Whether no attempt follows the one with this number."""
        return bool(self.attempts) and attempt >= (self.attempts or 0)

    def pause_s(self, attempt: int, fraction: float) -> float:
        """The pause after the attempt with this number; `fraction` is random in [0, 1)."""
        if not self.pauses_ms:
            return limits.RETRY_PAUSE_MS_MIN / 1_000
        pause_ms = self.pauses_ms[min(max(attempt, 1), len(self.pauses_ms)) - 1]
        return pause_ms / 1_000 * (1 - _JITTER + 2 * _JITTER * fraction)


def admit_policy(policy: RetryPolicy) -> None:
    """Raise `BadInput` for what cannot be a retry policy."""
    if not isinstance(policy, RetryPolicy):
        raise BadInput(f"retry has pauses, attempts_max and a timeout, not {policy!r}")
    pauses_ms, attempts_max = policy.pauses_ms, policy.attempts_max
    if pauses_ms is not None:
        _admit_pauses(pauses_ms)
    if attempts_max is not None:
        if type(attempts_max) is not int or not 0 <= attempts_max <= limits.OUTWARD_ATTEMPTS_MAX:
            raise BadInput(
                f"attempts_max is 0 (no limit) to {limits.OUTWARD_ATTEMPTS_MAX}, "
                f"not {attempts_max!r}"
            )
        if pauses_ms == () and attempts_max != 1:
            raise BadInput("retry without pauses means one attempt: leave out attempts_max")
    timeout_ms = policy.timeout_ms
    if timeout_ms is not None and (
        type(timeout_ms) is not int or not 0 < timeout_ms <= limits.OUTWARD_TIMEOUT_MS_MAX
    ):
        raise BadInput(
            f"the timeout of an attempt is 1 to {limits.OUTWARD_TIMEOUT_MS_MAX} ms, "
            f"not {timeout_ms!r}"
        )


def _admit_pauses(pauses_ms: tuple[int, ...]) -> None:
    least_ms, most_ms = limits.RETRY_PAUSE_MS_MIN, limits.RETRY_PAUSE_MS_MAX
    if type(pauses_ms) is not tuple or len(pauses_ms) > limits.RETRY_PAUSES_MAX:
        raise BadInput(f"retry has a list of up to {limits.RETRY_PAUSES_MAX} pauses")
    for pause_ms in pauses_ms:
        if type(pause_ms) is not int or not least_ms <= pause_ms <= most_ms:
            raise BadInput(f"a pause is {least_ms} to {most_ms} ms, not {pause_ms!r}")


def read_policy(retry: Any) -> RetryPolicy | None:
    """A policy that is given in seconds: `pauses_s`, `attempts_max`, `timeout_s`. Raises
    `BadInput`."""
    if retry is None:
        return None
    if isinstance(retry, RetryPolicy):
        policy = retry
    else:
        if not isinstance(retry, Mapping) or not set(retry) <= set(_MEMBERS):
            raise BadInput(f"retry has the members {', '.join(_MEMBERS)}, not {retry!r}")
        pauses_s, timeout_s = retry.get("pauses_s"), retry.get("timeout_s")
        policy = RetryPolicy(
            None if pauses_s is None else pauses_of(pauses_s),
            retry.get("attempts_max"),
            None if timeout_s is None else _milliseconds(timeout_s, "timeout_s"),
        )
    admit_policy(policy)
    return policy


def pauses_of(pauses_s: Any) -> tuple[int, ...]:
    """Pauses in milliseconds. Raises `BadInput`."""
    if isinstance(pauses_s, str) or not isinstance(pauses_s, Sequence):
        raise BadInput(f"pauses_s is a list of seconds, not {pauses_s!r}")
    return tuple(_milliseconds(pause_s, "a pause") for pause_s in pauses_s)


def _milliseconds(time_s: Any, what: str) -> int:
    if type(time_s) not in (int, float) or not 0 < time_s < 1e9:
        raise BadInput(f"{what} is a number of seconds, not {time_s!r}")
    return max(int(time_s * 1_000 + 0.5), 1)
