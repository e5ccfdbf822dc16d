"""The public surface: which modules an import loads."""

import subprocess
import sys

import pytest

from tests import tidy
from tests.server_process import ROOT

# The engine, the store, and all processes of capabilities.
HEAVY = "app cli engine node observe schedule store tables web work locks maintenance"
[PROCESSES] = [row.removeprefix("= ") for row in tidy.LAYERS if row.startswith("= node ")]
DRIVERS = {"apsw", "asyncpg", "uvicorn", "sortedcontainers"}


def loaded(module: str) -> set[str]:
    """The modules that are loaded after an import in a new interpreter."""
    script = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["onceward", "onceward.client", "onceward.tokens"])
def test_a_client_loads_no_store_no_engine_and_no_process(module: str) -> None:
    found = loaded(module)
    assert module in found
    assert not found & DRIVERS
    ours = {name.removeprefix("onceward.") for name in found if name.startswith("onceward.")}
    assert [name for name in sorted(ours) if tidy.covered(name, f"{HEAVY} {PROCESSES}")] == []
