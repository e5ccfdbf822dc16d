"""Reasons for failures and changes of jobs, as text of bounded length."""

from collections.abc import Iterator

from onceward import limits
from onceward.errors import OncewardError

_ODD = "backslashreplace"


def reason_text(reason: str) -> str:
    """A reason in its stored form: cut to its limit, and without characters that records reject."""
    text = reason[: limits.REASON_CHARS_MAX].encode(errors=_ODD)
    return text[: limits.REASON_BYTES_MAX].decode(errors="ignore")


def reason_of(error: BaseException) -> str:
    """The message of an error, as text that can be stored and printed."""
    return "; ".join(_says(leaf) for leaf in leaves(error)).encode(errors=_ODD).decode()


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group of errors, or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from leaves(part)
    else:
        yield error


def _says(error: BaseException) -> str:
    if isinstance(error, OncewardError):
        return error.message
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__} (its message cannot be read)"
