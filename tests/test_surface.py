"""The public surface: what applications import, and what an import loads."""

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests import tidy
from tests.docs import book
from tests.server_process import ROOT

PUBLIC = (
    "onceward",
    "onceward.client",
    "onceward.integrations.fastapi",
    "onceward.integrations.starlette",
    "onceward.sql",
    "onceward.sync",
    "onceward.testing",
    "onceward.tokens",
    "onceward.web",
)
# Pages for maintainers, which show code of the package itself.
FOR_MAINTAINERS = ("CONTRIBUTING.md", "internals.md", "records.md", "recipes.md", "decisions/")

# The engine, the store, and all processes of capabilities.
HEAVY = "app cli engine node observe schedule store tables web work locks maintenance"
[PROCESSES] = [row.removeprefix("= ") for row in tidy.LAYERS if row.startswith("= node ")]
DRIVERS = {"apsw", "asyncpg", "uvicorn", "sortedcontainers"}


def shown() -> Iterator[tuple[str, str]]:
    """(place, code) of the applications, the examples, and the Python blocks of pages for users."""
    for folder in ("apps", "examples", "onceward/integrations"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    for page, path in book.paths().items():
        if not page.startswith(FOR_MAINTAINERS):
            for block in book.blocks(page, path.read_text(encoding="utf-8")):
                if block.language == "python":
                    yield str(block), block.text


def hidden(code: str) -> list[str]:
    """What code uses of the package that is not public."""
    tree = ast.parse(code)
    aliases = {"onceward": "onceward"}
    used = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            used |= {alias.name for alias in node.names if _is_ours(alias.name)}
        elif isinstance(node, ast.ImportFrom) and node.module and _is_ours(node.module):
            used |= {f"{node.module}.{alias.name}" for alias in node.names}
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            whole = aliases.get(node.value.id)
            if whole in ("onceward", "onceward.keys", *PUBLIC):
                used.add(f"{whole}.{node.attr}")
    return sorted(name for name in used if not _is_public(name))


def _is_ours(name: str) -> bool:
    return f"{name}.".startswith("onceward.")


def _is_public(name: str) -> bool:
    module, _, last = name.rpartition(".")
    if f"{name}.".startswith("onceward.integrations."):
        return True  # each is public for its framework, and they use one another
    if name in PUBLIC:
        return True
    if module not in (*PUBLIC, "onceward.keys"):
        return False
    return last in importlib.import_module(module).__all__


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import onceward\nonceward.App('memory://')", []),
        ("import onceward\nonceward.app", ["onceward.app"]),
        ("import onceward.store", ["onceward.store"]),
        ("from onceward import App, tokens\ntokens.sign", []),
        ("from onceward import tokens\ntokens.hmac", ["onceward.tokens.hmac"]),
        ("from onceward import keys\nkeys.join('a')\nkeys.qualified", ["onceward.keys.qualified"]),
        ("from onceward.errors import BadInput", ["onceward.errors.BadInput"]),
        ("from onceward.web import Site, asgi", ["onceward.web.asgi"]),
        ("def late():\n    from onceward.app import App", ["onceward.app.App"]),
    ],
)
def test_what_is_not_public_is_found(code: str, found: list[str]) -> None:
    assert hidden(code) == found


def test_applications_examples_and_guides_use_the_public_surface_alone() -> None:
    places = dict(shown())
    assert {"apps/rps/game.py", "examples/crash.py"} <= set(places)
    assert any(place.startswith("guides/") for place in places)
    found = {place: names for place, code in places.items() if (names := hidden(code))}
    assert found == {}


@pytest.mark.parametrize("module", PUBLIC)
def test_a_public_module_declares_names_that_it_has(module: str) -> None:
    public = importlib.import_module(module)
    assert len(set(public.__all__)) == len(public.__all__) > 0
    for name in public.__all__:
        assert getattr(public, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = public.no_such_name


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
