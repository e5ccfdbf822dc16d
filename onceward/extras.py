"""Optional dependencies: the extra of the package that installs a missing module."""

EXTRAS = {
    "aiohttp": "client",
    "asyncpg": "postgres",
    "cryptography": "webhooks",
    "django": "django",
    "fastapi": "fastapi",
    "flask": "flask",
    "httptools": "webhooks",
    "idna": "webhooks",
    "jwt": "server",
    "opentelemetry": "otel",
    "rich": "cli",
    "starlette": "fastapi",
    "uvicorn": "server",
    "uvloop": "server",
    "websockets": "server",
}
"""The extra for each module that `pip install onceward` does not install."""


def missing(error: ModuleNotFoundError) -> str | None:
    """The missing module and how to install it; None if it belongs to no extra."""
    module = (error.name or "").partition(".")[0]
    if module not in EXTRAS:
        return None
    return f"{module}: pip install 'onceward[{EXTRAS[module]}]'"
