"""What some tests need and not everybody has: they are skipped without it, but not in CI."""

import importlib
import os
import shutil
from typing import Any, NoReturn

import pytest


def need(module: str) -> Any:
    """A module of the test group."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing(f"{module} cannot be imported: {error}")


def need_program(*names: str) -> str:
    """Where a program is, under one of its names."""
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        missing(f"none of these programs is here: {', '.join(names)}")
    return found


def missing(why: str) -> NoReturn:
    """Skip a test, or a whole file; in CI, fail."""
    if os.environ.get("CI"):
        pytest.fail(f"CI must have it: {why}", pytrace=False)
    pytest.skip(why, allow_module_level=True)
