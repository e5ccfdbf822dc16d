"""Options of public functions are named, so that type checkers find a wrong one."""

import importlib
import inspect
from collections.abc import Iterator
from typing import (
    Any,
    ParamSpecKwargs,
    Unpack,
    get_args,
    get_origin,
    get_overloads,
    get_type_hints,
    is_typeddict,
)

import pytest

from onceward.api import OPERATIONS
from onceward.app import App
from onceward.client import Client
from onceward.client.rooms.acts import ActMembers
from onceward.client.work import Worker, WorkerKeywords
from onceward.tables.operations import FUNCTIONS as ACTS
from onceward.web import Server, ServerKeywords
from tests.server_process import ROOT
from tests.test_surface import PUBLIC

MODULES = sorted(PUBLIC)
# By `app.` and `client.`: objects whose classes have no public name.
PARTS = {
    f"{owner}.{name}": getattr(value, "__origin__", value)
    for owner, hints in {
        "app": get_type_hints(App),
        "client": vars(Client("http://localhost", key="x")),
    }.items()
    for name, value in hints.items()
    if not name.startswith("_")
}


def public() -> Iterator[tuple[str, Any]]:
    """The functions and methods of applications, by name."""
    for module in MODULES:
        for name in importlib.import_module(module).__all__:
            yield from functions(name, getattr(importlib.import_module(module), name))
    for path in sorted((ROOT / "onceward/sync").rglob("*.py")):  # written by a script
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for name, value in vars(importlib.import_module(module)).items():
            if inspect.isclass(value) and value.__module__ == module and name[0] != "_":
                yield from functions(f"{module}.{name}", value)
    for name, part in PARTS.items():
        yield from functions(name, part if isinstance(part, type) else type(part))


def functions(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, type) and value.__module__.startswith("onceward"):
        for member, fn in inspect.getmembers(value, inspect.isfunction):
            if not fn.__module__.startswith("onceward"):
                continue  # inherited
            if not member.startswith("_") or member in ("__init__", "__call__"):
                yield f"{name}.{member}", fn
    elif inspect.isfunction(value):
        yield name, value


FUNCTIONS = dict(public())


def test_the_functions_are_found() -> None:
    assert {"App.send", "Client.send_many", "app.rooms.map_set", "Job.step"} <= set(FUNCTIONS)
    assert {"client.jobs.wait", "onceward.sync.app.rooms.Rooms.map_set"} <= set(FUNCTIONS)
    assert len(FUNCTIONS) > 400


def is_named(annotation: Any) -> bool:
    """Whether the names of keyword arguments are known: a TypedDict, or those of a function."""
    if isinstance(annotation, str):  # in modules that do not evaluate annotations
        return annotation.startswith("Unpack[") or annotation.endswith(".kwargs")
    if get_origin(annotation) is Unpack:
        return is_typeddict(get_args(annotation)[0])
    return isinstance(annotation, ParamSpecKwargs)


def test_no_option_escapes_type_checkers() -> None:
    unnamed = [
        name
        for name, fn in FUNCTIONS.items()
        # Checkers look at overloads, and not at what they have in common.
        if not get_overloads(fn)
        for parameter in inspect.signature(fn).parameters.values()
        # The details of errors are whatever belongs to them.
        if parameter.kind is parameter.VAR_KEYWORD and parameter.name != "details"
        if not is_named(parameter.annotation)
    ]
    assert unnamed == []


def test_the_members_of_acts_are_those_of_the_requests() -> None:
    fields = {
        name
        for operation in OPERATIONS.values()
        if operation.name in ACTS
        for struct in (operation.body, operation.query)
        if struct is not None
        for name in struct.__struct_fields__
    }
    assert set(ActMembers.__annotations__) == fields


@pytest.mark.parametrize(
    ("keywords", "class_", "others"),
    [(WorkerKeywords, Worker, set()), (ServerKeywords, Server, {"work"})],
)
def test_options_that_are_passed_on_are_those_of_the_class(
    keywords: Any, class_: type, others: set[str]
) -> None:
    options = {
        parameter.name
        for parameter in inspect.signature(class_).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    assert set(keywords.__annotations__) == options - others
