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
from onceward.metric_table import METRICS, full_name
from onceward.parts import all_kinds
from onceward.web.api import ROUTES
from onceward.web.settings import MEANING, Settings
from scripts import reference, reference_python
from tests import test_surface
from tests.docs.book import ROOT


@cache
def page(name: str) -> str:
    return str(reference.PAGES[name]())


def test_the_navigation_has_every_page() -> None:
    nav = (ROOT / "mkdocs.yml").read_text()
    assert set(re.findall(r"reference/([\w/.]+)\.md", nav)) == {*reference.PAGES, *python_pages()}


@cache
def python_pages() -> dict[str, str]:
    return reference_python.pages()


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


def test_every_metric_is_there_with_its_labels() -> None:
    rows = [line.split("|")[1:-1] for line in page("metrics").splitlines() if "| `" in line[:3]]
    assert [row[0].strip(" `") for row in rows] == [
        full_name(name, metric.kind) for name, metric in METRICS.items()
    ]
    assert rows[-1][3].strip() == list(METRICS.values())[-1].help
    labels = {row[0].strip(" `"): row[2].strip() for row in rows}
    assert labels["onceward_ended_total"] == "`queue`, `state`"
    assert labels["onceward_jobs"] == "`queue`, `state`"


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


def test_every_public_module_has_a_page() -> None:
    assert {*test_surface.PUBLIC, "onceward.keys"} == set(reference_python.PUBLIC)


@pytest.mark.parametrize(
    ("page", "module_name", "names"),
    list(reference_python.sections()),
    ids=lambda one: str(one)[:40],
)
def test_every_public_name_has_a_section(page: str, module_name: str, names: list[str]) -> None:
    text = python_pages()[page]
    module = importlib.import_module(module_name)
    for name in names:
        said = anchored(text, name)
        member: Any = getattr(module, name)
        if not inspect.isclass(member):
            assert inspect.getdoc(member), f"{module_name}.{name} has no docstring"
            continue
        assert said.strip(), f"{module_name}.{name} has no description"
        for method in reference_python.methods(member):
            anchored(text, f"{name}.{method}")


def anchored(text: str, name: str) -> str:
    """The section with the anchor of a name."""
    found = re.search(rf"^#+ .*{{#{re.escape(name.lower())}}}\n(.*?)(?=^#+ |\Z)", text, re.S | re.M)
    assert found, name
    return found[1]


def test_a_signature_is_as_written_with_types_that_are_links() -> None:
    said = anchored(python_pages()["python/onceward"], "App.cron")
    assert '    zone: str = "UTC",\n    name: str | None = None,\n' in said
    assert "**options: Unpack[JobKeywords],\n) -> None" in said
    said = anchored(python_pages()["python/app"], "Locks.hold")
    assert "### app.locks.hold {#locks.hold}" in python_pages()["python/app"]
    assert "[Hold](#hold)</code>" in said
    assert "| `wait_s` | <code>float &#124; None</code> | The maximum time to wait" in said
    assert "Raises [`LockHeld`](onceward.md#lockheld)" in said


@pytest.mark.parametrize(
    ("page", "name", "row"),
    [
        ("onceward", "App.send", "| `due_ms` | <code>int</code> | When the job is due: after"),
        ("onceward", "App.every", "| `priority` | <code>int &#124; None</code> | The priority: 0"),
        ("onceward", "App.queue", "| `retry_first_s` | <code>float</code> | The pause after"),
        ("onceward.client", "Client.worker", "| `lease_s` | <code>float</code> | The lease of"),
        ("app", "rooms.map_set", "| `create` | <code>bool</code> | Whether to create the room"),
    ],
)
def test_options_that_are_keyword_arguments_are_listed(page: str, name: str, row: str) -> None:
    assert row in anchored(python_pages()[f"python/{page}"], name)


def test_every_link_of_the_reference_has_a_place() -> None:
    pages = {
        f"python/{name.removeprefix('python/')}": text for name, text in python_pages().items()
    }
    places = {name: set(re.findall(r"{#([^}]+)}", text)) for name, text in pages.items()}
    for name, text in pages.items():
        for target, anchor in re.findall(r"\]\(([\w.]*?)(?:\.md)?#([\w.]+)\)", text):
            assert anchor in places[f"python/{target}" if target else name], (name, target, anchor)


def test_the_openapi_document_is_what_the_page_is_made_of() -> None:
    document = json.loads(reference.document(reference.Routes(ROUTES)))
    assert sum(map(len, document["paths"].values())) == page("http").count("\n## ")
