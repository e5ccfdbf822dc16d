"""The generated methods of the client: one for each operation, and up to date."""

import inspect
from typing import Any

import msgspec
import pytest

from onceward.api import OPERATIONS
from onceward.api.arguments import arguments
from onceward.client import Client
from onceward.client.operations.base import Operations
from scripts import generate_python

CLIENT = Client("http://127.0.0.1:1")
NAMESPACES = {noun: found for noun, found in vars(CLIENT).items() if isinstance(found, Operations)}
CALLS = {
    one.name: one
    for one in OPERATIONS.values()
    if one.kind == "call" and one.noun != "plain_timers"
}
# Written by hand, on top of the operations.
ADDED = {
    *(
        "jobs.follow",
        "jobs.result",
        "jobs.wait",
        "locks.hold",
        "queues.purge_all",
        "queues.redrive_all",
        "tables.follow",
    ),
}


def test_the_generated_files_are_up_to_date() -> None:
    found = {path.name: path.read_text() for path in generate_python.FOLDER.glob("*.py")}
    assert found == generate_python.files(), "run `make generate`"


def test_each_operation_is_a_method_and_each_method_an_operation() -> None:
    methods = {
        f"{noun}.{name}"
        for noun, space in NAMESPACES.items()
        for name, _ in inspect.getmembers(space, inspect.ismethod)
        if not name.startswith(("_", "iterate"))
    }
    assert methods == {*CALLS, *ADDED}


@pytest.mark.parametrize("name", CALLS)
def test_a_method_has_the_arguments_of_its_operation(name: str) -> None:
    noun, _, verb = name.partition(".")
    method: Any = getattr(NAMESPACES[noun], verb)
    found = inspect.signature(method).parameters
    wanted = {one.name: one for one in arguments(CALLS[name])}
    assert list(found) == list(wanted)
    for parameter in found.values():
        required = wanted[parameter.name].required
        assert (parameter.default is parameter.empty) is required
        assert (parameter.kind is parameter.KEYWORD_ONLY) is not required
        assert f"- `{parameter.name}`: " in inspect.getdoc(method), parameter.name
    assert inspect.getdoc(method).startswith(CALLS[name].summary)


def test_each_list_has_an_iterator() -> None:
    paged = {
        name
        for name, one in CALLS.items()
        if {"after", "since"} & set(getattr(one.query, "__struct_fields__", ()))
        and "next" in one.response.__struct_fields__
        and one.name != "jobs.count"  # it has no entries
    }
    assert len(paged) >= 10
    for name in paged:
        noun, _, verb = name.partition(".")
        assert hasattr(NAMESPACES[noun], f"iterate_{verb}".replace("_list", "")), name


def test_deleting_implies_its_response() -> None:
    """After a lost response, only the path of the request is known."""
    for name, one in CALLS.items():
        if one.method == "DELETE" and one.done_errors:
            known = dict.fromkeys(one.parameters, "x")
            assert msgspec.convert(known, one.response).id == "x", name


def test_what_is_done_can_be_shown() -> None:
    """After a lost response, `get` of the same noun has the members of the response."""
    for name, one in CALLS.items():
        if one.method != "DELETE" and one.done_errors:
            get = OPERATIONS[f"{one.noun}.get"]
            needed = {f.name for f in msgspec.structs.fields(one.response) if f.required}
            assert needed <= set(get.response.__struct_fields__), name
