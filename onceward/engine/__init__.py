"""Storage engines for records: `create` and `open` select one by its URL."""

import os
from contextvars import ContextVar
from urllib.parse import unquote, urlsplit

from onceward.engine.base import Engine
from onceward.engine.memory import MemoryEngine
from onceward.errors import BadInput
from onceward.extras import missing
from onceward.redaction import redact_url

DEFAULT = "default"
"""The URL of an application without one."""
DEFAULT_URL = "sqlite:///onceward.db"
LOADING_FOR: ContextVar[str] = ContextVar("onceward_database")
"""The database URL of the settings, while an application is loaded for a command."""


def default_url() -> str:
    """The database URL of the settings or the environment, or a file in the current folder."""
    return LOADING_FOR.get("") or os.environ.get("ONCEWARD_DATABASE") or DEFAULT_URL


def create(url: str) -> Engine:
    """Return the engine for a database URL, not yet opened.

    URLs are `sqlite:///relative.db`, `sqlite:////absolute.db`, `memory://` and
    `postgresql://user:password@host/database?schema=onceward`.
    """
    if not isinstance(url, str):
        raise BadInput(
            f"a database URL must be a string, not {type(url).__name__}",
            code="bad_engine_url",
        )
    try:
        url.encode()
        parts = urlsplit(url)
    except UnicodeEncodeError:
        raise BadInput(
            f"the database URL {url[:20]!a} contains lone surrogates; remove them",
            code="bad_engine_url",
        ) from None
    except ValueError as error:
        # urlsplit quotes the host, and a password in it, after a quotation mark in some errors.
        reason = str(error).partition("'")[0].strip()
        raise BadInput(
            f"invalid database URL: {reason}; use sqlite:///file.db, postgresql://… or memory://",
            code="bad_engine_url",
        ) from None
    if "\0" in unquote(url):
        raise BadInput(
            f"the database URL {redact_url(url)!r:.200} contains NUL; remove it",
            code="bad_engine_url",
        )
    if parts.scheme in ("postgresql", "postgres"):
        return _create_postgres(url)
    if parts.query or parts.fragment:
        raise BadInput(
            f"{redact_url(url)!r}: a database URL of this kind has no ? or # part; remove it",
            code="bad_engine_url",
        )
    if parts.scheme == "memory" and not parts.netloc and not parts.path:
        return MemoryEngine(shared=False)
    if parts.scheme == "sqlite":
        if parts.netloc or not parts.path.startswith("/") or parts.path == "/":
            raise BadInput(
                f"{redact_url(url)!r}: use sqlite:///file.db for a relative path, "
                "or sqlite:////var/lib/file.db for an absolute path",
                code="bad_engine_url",
            )
        # Imported here, so that other engines do not need the driver.
        from onceward.engine.sqlite import SQLiteEngine

        return SQLiteEngine(unquote(parts.path[1:]))
    raise BadInput(
        f"unsupported database URL {redact_url(url)!r}; "
        "use sqlite:///file.db, postgresql://… or memory://",
        code="bad_engine_url",
    )


def _create_postgres(url: str) -> Engine:
    try:
        from onceward.engine.postgres import PostgresEngine
    except ModuleNotFoundError as error:
        if (needed := missing(error)) is None:
            raise
        raise BadInput(f"postgresql:// needs {needed}", code="bad_engine_url") from error
    return PostgresEngine(url)


async def open(url: str) -> Engine:
    """Create the engine for a database URL and open it."""
    return await create(url).open()
