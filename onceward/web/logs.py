"""Logs: as text for people, or as JSON, one object on a line, for programs."""

import json
import logging
from datetime import UTC, datetime
from typing import Any

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
