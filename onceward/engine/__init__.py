"""Storage engines for records: `create` and `open` select one by its URL."""

from urllib.parse import unquote, urlsplit

from onceward.engine.base import Engine
from onceward.engine.memory import MemoryEngine
from onceward.errors import BadInput
from onceward.redaction import redact_url


def create(url: str) -> Engine:
    """The engine for `sqlite:///relative.db`, `sqlite:////absolute.db`, `memory://` or
    `postgresql://user:password@host/database?schema=onceward`."""
    if not isinstance(url, str):
        raise BadInput(
            f"an engine is named by the text of a URL, not {type(url).__name__}",
            code="bad_engine_url",
        )
    try:
        url.encode()
        parts = urlsplit(url)
    except UnicodeEncodeError:
        raise BadInput("a database URL has no lone surrogates", code="bad_engine_url") from None
    except ValueError as error:
        # The library quotes host and password for some mistakes, behind a quotation mark.
        reason = str(error).partition("'")[0].strip()
        raise BadInput(f"this is not a database URL: {reason}", code="bad_engine_url") from None
    if "\0" in unquote(url):
        raise BadInput("the URL of an engine has no NUL in it", code="bad_engine_url")
    if parts.scheme in ("postgresql", "postgres"):
        return _create_postgres(url)
    if parts.query or parts.fragment:
        raise BadInput(
            f"{redact_url(url)!r}: engine URLs take no ? or # part", code="bad_engine_url"
        )
    if parts.scheme == "memory" and not parts.netloc and not parts.path:
        return MemoryEngine()
    if parts.scheme == "sqlite":
        if parts.netloc or not parts.path.startswith("/") or parts.path == "/":
            raise BadInput(
                f"{redact_url(url)!r}: write sqlite:///file.db for a file here, "
                "or sqlite:////var/lib/file.db for an absolute path",
                code="bad_engine_url",
            )
        # Imported here, so that the driver is needed only by those who use it.
        from onceward.engine.sqlite import SQLiteEngine

        return SQLiteEngine(unquote(parts.path[1:]))
    raise BadInput(
        f"{redact_url(url)!r} is no engine: known are memory://, sqlite:///file.db and postgresql://…",
        code="bad_engine_url",
    )


def _create_postgres(url: str) -> Engine:
    try:
        from onceward.engine.postgres import PostgresEngine
    except ModuleNotFoundError as error:
        raise BadInput(
            f"postgresql:// needs {error.name}: pip install 'onceward[postgres]'",
            code="bad_engine_url",
        ) from error
    return PostgresEngine(url)


async def open(url: str) -> Engine:
    """Create the engine that the URL names, and open it."""
    return await create(url).open()
