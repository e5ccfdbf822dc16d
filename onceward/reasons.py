"""Reasons and tracebacks of failures of jobs, as text of bounded length."""

import traceback
from collections.abc import Iterator
from pathlib import Path

from onceward import limits
from onceward.errors import OncewardError

_ODD = "backslashreplace"
_PACKAGE = str(Path(__file__).parent)


def reason_text(reason: str) -> str:
    """A reason in its stored form: cut to its limit, and without characters that records reject."""
    text = reason[: limits.REASON_CHARS_MAX].encode(errors=_ODD)
    return text[: limits.REASON_BYTES_MAX].decode(errors="ignore")


def traceback_text(whole: str) -> str:
    """A traceback in its stored form: its end, if it is longer than its limit."""
    text = whole.encode(errors=_ODD)
    if len(text) <= limits.TRACEBACK_BYTES_MAX:
        return text.decode()
    return f"…{text[-limits.TRACEBACK_BYTES_MAX :].decode(errors='ignore')}"


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


def traceback_of(error: BaseException) -> str:
    """The traceback of an error with its causes, beginning in the code of the application; empty
    for an error that was not raised."""
    if error.__traceback__ is None:
        return ""
    shown = traceback.TracebackException.from_exception(
        error, limit=-limits.STACK_CALLS_MAX, compact=True
    )
    _trim(shown)
    return "".join(shown.format()).rstrip()


def _trim(shown: traceback.TracebackException) -> None:
    """Remove the calls of this package that lead to the handler."""
    todo = [shown]
    while todo:
        one = todo.pop()
        ours = 0
        while ours < len(one.stack) and one.stack[ours].filename.startswith(_PACKAGE):
            ours += 1
        del one.stack[:ours]
        todo += [each for each in (one.__cause__, one.__context__) if each is not None]
        todo += one.exceptions or []
