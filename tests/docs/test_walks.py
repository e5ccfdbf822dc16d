"""Pages for maintainers name functions and files that exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.docs.book import ROOT

PAGES = ("internals.md", "walks.md", "tasks.md", "records.md", "recipes.md")
TEXTS = {page: (ROOT / "docs" / page).read_text(encoding="utf-8") for page in PAGES}
FUNCTION = re.compile(r"`([\w/.]+\.py)::([\w.]+)`")
FILE = re.compile(r"`((?:onceward|tests|scripts|docs|clients)/[\w/.-]*)`")
METHOD = re.compile(r"`([A-Z]\w+)\.(?!md`)(\w+)`")


@cache
def names(path: str) -> set[str]:
    """The functions and methods of a file, with their classes."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return set(_names(tree, ""))


def _names(within: ast.AST, prefix: str) -> Iterator[str]:
    for node in ast.iter_child_nodes(within):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{node.name}"
        elif isinstance(node, ast.ClassDef):
            yield from _names(node, f"{prefix}{node.name}.")


@cache
def members() -> dict[str, set[str]]:
    """The methods and attributes of all classes of the package, by the names of the classes."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "onceward").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).update(_members(node))
    return found


def _members(class_: ast.ClassDef) -> Iterator[str]:
    for node in ast.walk(class_):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            for target in targets:
                if isinstance(target, ast.Name):
                    yield target.id
                elif isinstance(target, ast.Attribute):
                    yield target.attr


def missing(text: str) -> list[str]:
    """The functions, files and methods in a text that do not exist."""
    found = []
    for path, name in FUNCTION.findall(text):
        full = path if path.startswith("tests/") else f"onceward/{path}"
        if not (ROOT / full).is_file() or name not in names(full):
            found.append(f"{path}::{name}")
    for path in FILE.findall(text):
        if "NAME" not in path and "NOUN" not in path and not list(ROOT.glob(path)):
            found.append(path)
    for class_, name in METHOD.findall(text):
        if class_ != "Event" and name not in members().get(class_, ()):
            found.append(f"{class_}.{name}")
    return found


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_functions_and_files_that_exist(page: str) -> None:
    assert missing(TEXTS[page]) == []


def test_a_renamed_function_method_or_file_is_found() -> None:
    text = (
        "`app.py::App.start`, `onceward/app.py`, `App.start` and `tests/docs/test_walks.py::names`"
    )
    assert missing(text) == []
    renamed = (
        text.replace("start", "begin").replace("names", "nouns").replace("d/app", "d/application")
    )
    assert missing(renamed) == [
        *("app.py::App.begin", "tests/docs/test_walks.py::nouns"),
        *("onceward/application.py", "App.begin"),
    ]


def test_there_are_three_walks_of_many_functions() -> None:
    walks = TEXTS["walks.md"].split("\n## ")[1:]
    assert [walk.partition("\n")[0] for walk in walks] == [
        *("A message", "A timer", "A room change"),
    ]
    assert all(len(FUNCTION.findall(walk)) >= 20 for walk in walks)
