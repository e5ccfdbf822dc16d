"""Loading of the application in a setting or command line argument."""

from importlib import import_module
from typing import Any

from onceward.app import App
from onceward.errors import OncewardError


def load_app(path: str) -> App:
    """Import the application `module:name`. Raises `bad_settings`."""
    module, _, name = path.partition(":")
    try:
        found: Any = getattr(import_module(module), name or "app")
    except (ImportError, AttributeError, ValueError) as error:
        raise OncewardError(f"cannot load {path!r}: {error}", code="bad_settings") from error
    if not isinstance(found, App):
        raise OncewardError(f"{path!r} is not an onceward.App", code="bad_settings")
    return found
