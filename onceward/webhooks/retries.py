"""Retry policies: attempts, pauses and timeout of a webhook call.

Timer, endpoint and server may each have one. Members that the timer omits come from its endpoint,
then from the server.
"""

from collections.abc import Sequence
from typing import Any

from onceward import limits
from onceward.api.arguments import in_milliseconds
from onceward.api.retries import RetryPolicy
from onceward.errors import BadInput
from onceward.quantities import milliseconds

PAUSES_S = (5.0, 30.0, 120.0, 600.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0)
"""Default pauses: 17 hours and 42 minutes in total, so that a receiver can be down over night
without missing calls."""
ATTEMPTS = len(PAUSES_S) + 1


def admit_policy(policy: RetryPolicy) -> None:
    """Raise `BadInput` for an invalid retry policy."""
    if not isinstance(policy, RetryPolicy):
        raise BadInput(f"retry must have pauses, attempts_max and a timeout, not {policy!r}")
    pauses_ms, attempts_max = policy.pauses_ms, policy.attempts_max
    if pauses_ms is not None:
        _admit_pauses(pauses_ms)
    if attempts_max is not None:
        if type(attempts_max) is not int or not 0 <= attempts_max <= limits.OUTWARD_ATTEMPTS_MAX:
            raise BadInput(
                f"attempts_max must be 0 (no limit) to {limits.OUTWARD_ATTEMPTS_MAX}, "
                f"not {attempts_max!r}"
            )
        if pauses_ms == () and attempts_max != 1:
            raise BadInput(
                f"retry without pauses means one attempt, not {attempts_max}; omit attempts_max"
            )
    timeout_ms = policy.timeout_ms
    if timeout_ms is not None and (
        type(timeout_ms) is not int or not 0 < timeout_ms <= limits.OUTWARD_TIMEOUT_MS_MAX
    ):
        raise BadInput(
            f"the timeout of an attempt must be 1 to {limits.OUTWARD_TIMEOUT_MS_MAX} ms, "
            f"not {timeout_ms!r}"
        )


def _admit_pauses(pauses_ms: tuple[int, ...]) -> None:
    least_ms, most_ms = limits.RETRY_PAUSE_MS_MIN, limits.RETRY_PAUSE_MS_MAX
    if type(pauses_ms) is not tuple or len(pauses_ms) > limits.RETRY_PAUSES_MAX:
        raise BadInput(
            f"`retry` must have a list of up to {limits.RETRY_PAUSES_MAX} pauses, not "
            f"{str(pauses_ms)[:100]}"
        )
    for pause_ms in pauses_ms:
        if type(pause_ms) is not int or not least_ms <= pause_ms <= most_ms:
            raise BadInput(f"a pause must be {least_ms} to {most_ms} ms, not {pause_ms!r}")


def read_policy(retry: Any) -> RetryPolicy | None:
    """Read a policy given in seconds: `pauses_s`, `attempts_max`, `timeout_s`. Raises
    `BadInput`."""
    if retry is None:
        return None
    if isinstance(retry, RetryPolicy):
        policy = retry
    else:
        policy = RetryPolicy(**in_milliseconds(RetryPolicy, retry))
    admit_policy(policy)
    return policy


def pauses_of(pauses_s: Any) -> tuple[int, ...]:
    """Convert pauses to milliseconds. Raises `BadInput`."""
    if isinstance(pauses_s, str) or not isinstance(pauses_s, Sequence):
        raise BadInput(f"pauses_s must be a list of seconds, not {pauses_s!r}")
    return tuple(milliseconds(pause_s, "a pause") for pause_s in pauses_s)
