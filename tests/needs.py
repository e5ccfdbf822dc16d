"""What some tests need and not everybody has: they are skipped without it, but not in CI."""

import importlib
import os
from typing import Any, NoReturn

import pytest


def need(module: str) -> Any:
    """A module of the test group."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing(f"{module} cannot be imported: {error}")


def missing(why: str) -> NoReturn:
    """Skip a test, or a whole file; in CI, fail."""
    if os.environ.get("CI"):
        pytest.fail(f"CI must have it: {why}", pytrace=False)
    pytest.skip(why, allow_module_level=True)
