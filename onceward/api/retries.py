"""The struct of retry policies: attempts, pauses and timeout of a webhook call."""

import msgspec

from onceward import limits

# A pause varies by up to this share, so that calls that failed together do not return together.
_JITTER = 0.2


class RetryPolicyView(msgspec.Struct, frozen=True, omit_defaults=True):
    """The retry policy of a timer or an endpoint, as responses have it."""

    pauses_ms: tuple[int, ...] | None = None
    """The pause after each failed attempt. The last one repeats if there are more attempts."""
    attempts_max: int | None = None
    """How many attempts there are; 0: no limit. By default one more than there are pauses."""
    timeout_ms: int | None = None
    """How long an attempt may take, the connection included."""


class RetryPolicy(RetryPolicyView, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """When a call that failed is attempted again. Members that are None are not specified."""

    @property
    def attempts(self) -> int | None:
        """How many attempts there are; 0: no limit, None: not specified."""
        if self.attempts_max is not None or self.pauses_ms is None:
            return self.attempts_max
        return len(self.pauses_ms) + 1

    def over(self, other: "RetryPolicy | None") -> "RetryPolicy":
        """This policy, with missing members from another one."""
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
