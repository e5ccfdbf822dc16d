"""Redaction of credentials in database URLs and messages.

Code that prints, logs or returns a database URL applies `redact_url`. Code that prints a message
that may quote a URL applies `redact`.
"""

import re

# In a path, `//` has become `/`. The password always ends before the last @.
_DATABASE = re.compile(r"\b(postgres(?:ql)?:/+).*@", re.IGNORECASE | re.DOTALL)
_OTHER = re.compile(r"\b([a-z][a-z0-9+.-]*:/+)[^\s/?#]+@", re.IGNORECASE)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:/+", re.IGNORECASE)
# `password`, `sslpassword`, `passfile` and similar: in a query or a connection string.
_PARAMETER = re.compile(r"\b(\w*(?:pass|secret|token)\w*=)(?:'[^']*'|[^&\s'\"]*)", re.IGNORECASE)


def redact(text: str) -> str:
    """A message without the user names and passwords of URLs in it."""
    if "@" in text:
        text = _OTHER.sub(r"\1…@", _DATABASE.sub(r"\1…@", text))
    return _PARAMETER.sub(r"\1…", text) if "=" in text else text


def redact_url(url: str) -> str:
    """A database URL without its user, its password, and the secret parameters of its query."""
    head, at, tail = url.rpartition("@")
    if at:
        scheme = _SCHEME.match(head)
        url = f"{scheme[0] if scheme else ''}…@{tail}"
    return redact(url)
