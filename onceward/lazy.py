"""Lazy imports: names of a package that are loaded on first use."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from onceward.extras import missing


def lazy(package: str, where: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package. `where` maps each name to its module, or to `module:name` if
    the name differs there.

    Raises `ModuleNotFoundError` with the extra to install if an optional dependency is missing.
    """

    def load(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, other = where[name].partition(":")
        try:
            value = getattr(import_module(module), other or name)
        except ModuleNotFoundError as error:
            if (needed := missing(error)) is None:
                raise
            raise ModuleNotFoundError(
                f"{package}.{name} needs {needed}", name=error.name
            ) from error
        setattr(sys.modules[package], name, value)  # later uses need no call
        return value

    return load
