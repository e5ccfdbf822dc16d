"""Failed attempts: what their jobs store and their processes log about the errors."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from onceward import limits
from onceward.errors import OncewardError
from onceward.job_context import about
from onceward.reasons import reason_of, reason_text, traceback_of, traceback_text
from onceward.redaction import redact
from onceward.repeats import Repeats
from onceward.schedule import Claim
from onceward.schedule.records import ErrorDetails

logger = logging.getLogger("onceward")

# Text is cut before it is redacted as well, so that a huge message takes no time.
_CUT = 8


@dataclass(frozen=True, slots=True)
class Failure:
    """The error of a failed attempt, as text that can be stored."""

    reason: str
    details: ErrorDetails


class Failures:
    """Describes and logs the failed attempts of a process."""

    def __init__(self, hide: Callable[[str], str] | None, elapsed_ns: Callable[[], int]) -> None:
        """`hide` removes secrets from a text."""
        self._hide = hide
        self._repeats = Repeats(elapsed_ns)

    def describe(self, error: BaseException) -> Failure:
        """The type, the message and the traceback of an error, without local variables."""
        reason = reason_of(error)[: _CUT * limits.REASON_CHARS_MAX]
        whole = traceback_of(error)[-_CUT * limits.TRACEBACK_BYTES_MAX :]
        return Failure(
            reason_text(hidden(reason, self._hide)),
            ErrorDetails(
                type(error).__name__[: limits.ERROR_TYPE_CHARS_MAX],
                traceback_text(hidden(whole, self._hide)),
            ),
        )

    def log(self, claim: Claim, state: str, failure: Failure, error: BaseException) -> None:
        """Log a failure in one line. Once a minute for a queue, a type of error and whether it is
        permanent, permanent ones are errors, and the traceback is added."""
        final = state in ("failed", "in_doubt")
        left_out = self._repeats.count((claim.queue, failure.details.type, final))
        level = logging.WARNING
        exc_info = stack_info = None
        if left_out is not None:
            if final:
                level = logging.ERROR
            if not isinstance(error, OncewardError):
                exc_info = error if self._hide is None else None
                stack_info = None if self._hide is None else failure.details.traceback or None
        record = logger.makeRecord(
            logger.name,
            level,
            __file__,
            0,
            "job %s of %s failed in attempt %d (%s): %s%s",
            (
                claim.id,
                claim.queue,
                claim.attempt,
                "no retry" if final and state == "failed" else state,
                failure.reason,
                f" ({left_out} more since the last traceback)" if left_out else "",
            ),
            None if exc_info is None else (type(exc_info), exc_info, exc_info.__traceback__),
            extra=about(claim.id, claim.queue, claim.attempt),
            sinfo=stack_info,
        )
        if logger.isEnabledFor(level):
            logger.handle(record)


def hidden(text: str, hide: Callable[[str], str] | None) -> str:
    """A text without passwords in URLs, and without what `hide` removes."""
    text = "\n".join(map(redact, text.split("\n")))  # a redacted URL ends with its line at most
    if hide is None or not text:
        return text
    try:
        rest: Any = hide(text)
        if isinstance(rest, str):
            return rest
        return f"(`redact` returned {type(rest).__name__}; it must return text)"
    except Exception as error:
        return f"(`redact` raised {type(error).__name__})"
