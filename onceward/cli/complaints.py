"""Errors of commands, on standard error."""

import sys

from onceward.redaction import redact


def complain(text: str) -> None:
    """An error, on one line, without credentials of the URLs in it."""
    print("onceward:", redact(" ".join(text.split())), file=sys.stderr)
