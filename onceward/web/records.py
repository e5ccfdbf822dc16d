"""Records of the server: API keys and sessions."""

import msgspec

API_KEYS = "apikey"
SESSIONS = "session"


class StoredKey(msgspec.Struct, frozen=True):
    """A stored API key; its sort key is its digest."""

    name: str
    """The caller's name."""
    scopes: tuple[str, ...]
    created_ms: int
    by: str
    """Id of the caller that created it."""


class StoredSession(msgspec.Struct, frozen=True):
    """The record of a session: its sort key is the caller's id and its own."""

    created_ms: int
    until_ms: int
    agent: str = ""
    """The user agent of the browser."""
