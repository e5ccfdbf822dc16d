"""Logging as text or as one JSON object per line."""

import json
import logging
from datetime import UTC, datetime
from typing import Any

from onceward.job_context import JobContext, add_job
from onceward.redaction import redact


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        for name in JobContext._fields:
            if (value := getattr(record, name, None)) is not None:
                line[name] = value
        if record.stack_info:
            line["stack"] = redact(record.stack_info)
        if record.exc_info:
            line["error"] = redact(self.formatException(record.exc_info))
        return json.dumps(line)  # ASCII, since a message may contain invalid text


class TextFormatter(logging.Formatter):
    """Formats a record as one line, followed by the traceback of an error. Quoted text cannot add
    lines or terminal control sequences."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        record.message = "".join(
            char if char.isprintable() else char.encode("unicode_escape").decode()
            for char in redact(record.message)
        )
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the library's name
        return redact(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - the library's name
        return redact(stack_info)


def set_up(form: str, level: str) -> None:
    """Log to standard error in a format, from a level."""
    handler = logging.StreamHandler()
    handler.addFilter(add_job)
    if form == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(TextFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # We log uvicorn's start and stop ourselves.
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, root.level))
