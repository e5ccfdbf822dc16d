"""Redaction of credentials in database URLs and messages.

Whatever prints, logs or returns a database URL takes it through `redact_url`; whatever prints a
message that may quote one takes it through `redact`.
"""

import re

# As a path, `//` has become `/`. Behind the last @ no password can stand, whatever is in it.
_DATABASE = re.compile(r"\b(postgres(?:ql)?:/+).*@", re.IGNORECASE | re.DOTALL)
_OTHER = re.compile(r"\b([a-z][a-z0-9+.-]*:/+)[^\s/?#]+@", re.IGNORECASE)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:/+", re.IGNORECASE)
# `password`, `sslpassword`, `passfile` and the like: of a query, or of a connection string.
_PARAMETER = re.compile(r"\b(\w*(?:pass|secret|token)\w*=)(?:'[^']*'|[^&\s'\"]*)", re.IGNORECASE)


def redact(text: str) -> str:
    """A message without the user and password of the URLs that it quotes."""
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
