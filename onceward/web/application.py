"""Loading of the application that a setting or the command line names."""

from importlib import import_module
from typing import Any

from onceward.app import App
from onceward.errors import OncewardError


def load_app(path: str) -> App:
    """The application that `module:name` says. Raises `bad_settings`."""
    module, _, name = path.partition(":")
    try:
        found: Any = getattr(import_module(module), name or "app")
    except (ImportError, AttributeError, ValueError) as error:
        raise OncewardError(f"{path!r} cannot be loaded: {error}", code="bad_settings") from error
    if not isinstance(found, App):
        raise OncewardError(f"{path!r} is no onceward.App", code="bad_settings")
    return found
