"""The reference has everything in it: it is made from the code, and nothing of that is left out."""

import argparse
import importlib
import inspect
import json
import re
from functools import cache
from typing import Any

import pytest

from onceward import limits
from onceward.capabilities import SCOPES
from onceward.cli import make_parser
from onceward.errors import TABLE
from onceward.parts import all_kinds
from onceward.web.api import ROUTES
from onceward.web.settings import MEANING, Settings
from scripts import reference
from tests.docs.book import ROOT


@cache
def page(name: str) -> str:
    return str(reference.PAGES[name]())


def test_the_navigation_has_every_page() -> None:
    nav = (ROOT / "mkdocs.yml").read_text()
    assert re.findall(r"reference/(\w+)\.md", nav) == list(reference.PAGES)


def parsers(parser: argparse.ArgumentParser, name: str) -> dict[str, argparse.ArgumentParser]:
    found = {name: parser}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                found |= parsers(inner, f"{name} {word}")
    return found


def section(text: str, title: str) -> str:
    """What stands below a title, up to the next one."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", text, re.DOTALL | re.MULTILINE)
    assert found, title
    return found[1]


def test_every_command_is_there_with_all_of_its_options() -> None:
    found = parsers(make_parser().complete_all(), "onceward")
    assert len(found) > 40
    for name, parser in found.items():
        if name == "onceward":
            continue
        said = section(page("commands"), name)
        for action in parser._actions:
            for option in set(action.option_strings) - {"-h", "--help"}:
                assert f"`{option}" in said, (name, option)


def test_every_setting_is_there_with_what_it_means_and_its_default() -> None:
    rows = [line for line in page("settings").splitlines() if line.startswith("| `")]
    assert [re.findall(r"`(\w+)`", row)[0] for row in rows] == list(Settings.__struct_fields__)
    for row in rows:
        name = re.findall(r"`(\w+)`", row)[0]
        assert MEANING[name] in row
        assert f"ONCEWARD_{name.upper()}" in row
    assert "`8080`" in rows[2]


def test_every_error_is_there_as_in_the_table() -> None:
    rows = {
        re.findall(r"`(\w+)`", line)[0]: [cell.strip() for cell in line.split("|")[1:-1]]
        for line in page("errors").splitlines()
        if line.startswith("| `")
    }
    assert list(rows) == list(TABLE)
    for code, kind in TABLE.items():
        again = "yes" if kind.retry else "no"
        wanted = [kind.title, str(kind.status), str(kind.close), str(kind.exit), again]
        assert rows[code][1:6] == wanted
    assert rows["key_reused"][6] == "`KeyReused`"


def test_every_limit_is_there_with_its_value() -> None:
    assigned = {name: value for name, value in vars(limits).items() if name.isupper()}
    assert len(assigned) > 150
    for name, value in assigned.items():
        shown = f"{value:,}" if isinstance(value, int) and value > 9_999 else str(value)
        assert f"| `{name}` | {shown} |" in page("limits"), name


def test_every_scope_and_kind_of_record_is_there() -> None:
    for scope in SCOPES.values():
        assert f"| `{scope.action}` | {scope.allows} |" in page("capabilities")
    for kind in all_kinds():
        row = f"| `{kind.partition}` | `{kind.sort}` | {kind.holds} |"
        assert row in page("capabilities")


def test_every_call_of_the_api_is_there_with_what_it_takes() -> None:
    for route in ROUTES:
        said = section(page("http"), f"{route.method} {route.path}")
        assert route.summary in said
        for name in (*route.query, *getattr(route.takes, "__struct_encode_fields__", ())):
            assert f"`{name}`" in said, (route.path, name)
        for code in route.problems:
            assert f"`{code}`" in said


@pytest.mark.parametrize("name", reference.MODULES)
def test_every_public_name_of_a_module_is_there_and_says_what_it_is(name: str) -> None:
    module = importlib.import_module(name)
    names = reference.public(module)
    assert names
    for one in names:
        said = section(page("python"), one)
        member: Any = getattr(module, one)
        if not inspect.isclass(member):
            assert inspect.getdoc(member), f"{name}.{one} says nothing"
            continue
        assert said.strip(), f"{name}.{one} says nothing"
        for method in reference.methods(member):
            assert f"#### {one}.{method}\n" in page("python")


def test_the_openapi_document_is_what_the_page_is_made_of() -> None:
    document = json.loads(reference.document(reference.Routes(ROUTES)))
    assert sum(map(len, document["paths"].values())) == page("http").count("\n## ")
