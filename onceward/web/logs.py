"""Logging as text or as one JSON object per line."""

import json
import logging
from datetime import UTC, datetime
from typing import Any

from onceward import limits
from onceward.clock import boot_ns
from onceward.redaction import redact


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        if record.exc_info:
            line["error"] = redact(self.formatException(record.exc_info))
        return json.dumps(line)  # in ASCII: it may hold what is no text


class TextFormatter(logging.Formatter):
    """A record as one line for people, and below it where an error was raised. What a message
    quotes of others can neither begin another line nor speak to the terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        record.message = "".join(
            char if char.isprintable() else char.encode("unicode_escape").decode()
            for char in redact(record.message)
        )
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the library's name
        return redact(super().formatException(ei))


class Repeats:
    """Keeps what is the same from filling the log: once, and again with a count every minute."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int]] = {}
        """When it was logged last, and how often it was left out since."""

    def count(self, code: str) -> int | None:
        """How often something of this code was left out before; None: leave this one out, too.
        Codes are constants of the program, so there are few."""
        now_ns = boot_ns()
        told_ns, left_out = self._known.get(code, (None, 0))
        if told_ns is not None and now_ns - told_ns < limits.RATED_TOLD_S * 1e9:
            self._known[code] = told_ns, left_out + 1
            return None
        self._known[code] = now_ns, 0
        return left_out


def set_up(form: str, level: str) -> None:
    """Log to standard error in a form, from a level on."""
    handler = logging.StreamHandler()
    if form == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(TextFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # What uvicorn says of its start and end we say ourselves.
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, root.level))
