"""The page on security has a test for each of its rows; and rules that hold for all of the code."""

import ast
import json
import re
from functools import cache
from pathlib import Path

import pytest

from tests.console import blocks
from tests.docs.book import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and "threat or rule" not in line
]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)(?:\[([^\]]+)\])?`")


@cache
def functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_every_row_names_tests_that_are_there(row: list[str]) -> None:
    threat, happens, tests = row
    assert threat
    assert happens
    found = NAMED.findall(tests)
    assert found
    assert NAMED.sub("", tests).strip(" ,") == ""
    for path, name, case in found:
        assert name in functions(path), f"{path} has no {name}"
        if case:
            folder = (ROOT / path).parent
            texts = [file.read_text() for file in folder.glob("*.py")]
            assert any(f'"{case}"' in text for text in texts), case


def test_there_are_many_rows_and_none_is_there_twice() -> None:
    assert len(ROWS) >= 60
    assert len({row[0] for row in ROWS}) == len(ROWS)
    assert len({row[2] for row in ROWS}) == len(ROWS)


# Where a secret that somebody sends is compared with the right one.
COMPARED = {
    "onceward/server_key.py": 1,
    "onceward/web/sessions.py": 1,
    "onceward/rooms/owners.py": 1,
    "apps/rps/twilio.py": 1,
    "apps/credit/intake.py": 2,
}
SECRET = re.compile(r"secret|token|mark$|signature")


@pytest.mark.parametrize("path", COMPARED)
def test_secrets_are_compared_in_constant_time(path: str) -> None:
    tree = ast.parse((ROOT / path).read_text())
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("compare_digest")
    ]
    assert len(calls) == COMPARED[path]
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
            sides = [node.left, *node.comparators]
            constant = any(isinstance(side, ast.Constant) for side in sides)
            names = [ast.unparse(side) for side in sides]
            assert constant or not any(map(SECRET.search, names)), ast.unparse(node)


def test_no_statement_is_put_together_from_what_callers_say() -> None:
    """What is put into a statement's text is fixed, or the schema, which is checked."""
    allowed = {"schema", "target.schema", "number", "_COLUMNS", "lock_ms", "limits.LOCK_MS"}
    allowed |= {"limits.SESSION_IDLE_MS"}
    for folder in ("sqlite", "postgres"):
        for path in (ROOT / "onceward" / "engine" / folder).glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr) and _is_sql(node):
                    put_in = {
                        ast.unparse(one.value)
                        for one in node.values
                        if isinstance(one, ast.FormattedValue)
                    }
                    assert put_in <= allowed, (path.name, node.lineno, put_in)


def _is_sql(node: ast.JoinedStr) -> bool:
    text = "".join(str(one.value) for one in node.values if isinstance(one, ast.Constant))
    return re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|WITH|SET)\b", text) is not None


def test_the_client_for_pages_has_no_dependencies() -> None:
    folder: Path = ROOT / "clients" / "js"
    package = json.loads((folder / "package.json").read_text())
    assert "dependencies" not in package
    for path in folder.rglob("*.js"):
        for name in re.findall(r'^(?:import|export) .*?from "([^"]+)"', path.read_text(), re.M):
            assert name.startswith(".") or (path.name, name) == ("react.js", "react"), (path, name)


def test_every_example_of_a_deployment_protects_the_metrics() -> None:
    guides = ROOT / "docs" / "guides"
    guide = guides / "deployment.md"
    [settings] = blocks(guide, "toml")
    assert "metrics_auth = true" in settings
    for language, guarded in (("nginx", "deny all;"), ("caddy", "respond @internal 403")):
        [proxy] = blocks(guide, language)
        assert "metrics" in proxy
        assert guarded in proxy
    for containers in blocks(guide, "yaml"):
        assert "ONCEWARD_METRICS_AUTH" in containers
    assert "credentials_file" in blocks(guides / "monitoring.md", "yaml")[0]
