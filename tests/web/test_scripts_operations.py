"""The JavaScript client has each operation, sends what is declared and reads what is declared."""

import json
import re
import subprocess
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
import pytest

from onceward.api.arguments import Argument, argument_name, arguments
from onceward.api.operation import Operation
from onceward.client import Client
from onceward.client.operations.base import Operations
from scripts import generate_js
from scripts.generate_js import CALLS, camel, method_name
from tests.needs import need_program
from tests.server_process import ROOT

# Calls methods with fake responses; prints the requests and the results.
PROGRAM = """\
import { readFileSync } from "node:fs";
import { Client } from %s;
const client = new Client("http://here");
const results = [];
for (const { name, given, response } of JSON.parse(readFileSync(0, "utf8"))) {
  const [noun, verb] = name.split(".");
  let request;
  globalThis.fetch = async (url, { method, body }) => {
    request = { method, url, body: body ?? null };
    return new Response(JSON.stringify(response), { status: 200 });
  };
  results.push({ name, found: await client[noun][verb](...given), ...request });
}
console.log(JSON.stringify(results));
"""
# Prints the names of methods by namespace.
NAMES = """\
import { Client } from %s;
const client = new Client("http://here");
const spaces = Object.entries(client).filter(([, one]) => typeof one === "object");
const names = spaces.map(([noun, verbs]) => [noun, Object.keys(verbs)]);
console.log(JSON.stringify(Object.fromEntries(names)));
"""
# A value of the user, whose names are not changed.
OWN: Any = {"my_key": [{"a_b": 1}]}


class Made(msgspec.Struct):
    """A call: what was requested, and what the client returned."""

    name: str
    method: str
    url: str
    body: str | None
    found: Any = None


def sample(type_: Any, *, renamed: bool = False) -> Any:
    """A value of a type as in a response; `renamed`: as the client returns it."""
    origin, parts = get_origin(type_), get_args(type_)
    if type_ is Any:
        return OWN
    if origin is Literal:
        return parts[-1]
    if origin in (Union, UnionType):
        return sample(next(one for one in parts if one is not NoneType), renamed=renamed)
    if origin in (list, tuple):
        return [sample(parts[0], renamed=renamed)]
    if origin is dict:
        return {"own_name": sample(parts[1], renamed=renamed)}
    if issubclass(type_, msgspec.Struct):
        return _sample_struct(type_, renamed)
    if hasattr(type_, "_fields"):
        return [sample(one) for one in get_type_hints(type_).values()]
    return {str: "text", int: 1, float: 1.0, bool: True}[type_]


def _sample_struct(struct: type[msgspec.Struct], renamed: bool) -> Any:
    hints, config = get_type_hints(struct), struct.__struct_config__
    found = {
        one.encode_name: sample(hints[one.name], renamed=renamed)
        for one in msgspec.structs.fields(struct)
    }
    if config.array_like:
        return list(found.values())
    tag = {config.tag_field: config.tag} if config.tag else {}
    return {**tag, **({camel(name): value for name, value in found.items()} if renamed else found)}


def argument(one: Argument) -> Any:
    """A value for an argument."""
    if one.json:
        return OWN
    if one.duration:
        return 60.0
    if one.struct is None:
        return sample(one.type)
    hints = get_type_hints(one.struct)
    found = {
        camel(argument_name(field.encode_name)): sample(hints[field.name])
        for field in msgspec.structs.fields(one.struct)
    }
    return [found] if get_origin(one.type) is list else found


@cache
def made() -> dict[str, Made]:
    """A call of each operation, with all its arguments."""
    calls = []
    for operation in CALLS:
        known = arguments(operation)
        options = {camel(one.name): argument(one) for one in known if not one.required}
        given = [*(argument(one) for one in known if one.required), *([options] if options else [])]
        response = sample(operation.response)
        calls.append({"name": method_name(operation), "given": given, "response": response})
    found = msgspec.convert(_ran(PROGRAM, json.dumps(calls)), list[Made])
    return {one.name: one for one in found}


def _ran(program: str, given: str) -> Any:
    """The output of a program with the client."""
    text = program % json.dumps((ROOT / "clients" / "js" / "http.js").as_uri())
    done = subprocess.run(
        [need_program("node"), "--input-type=module", "--eval", text],
        input=given,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5_000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("path", generate_js.files(), ids=lambda path: path.name)
def test_generated_files_are_those_of_the_operations(path: Any) -> None:
    assert path.read_text(encoding="utf-8") == generate_js.files()[path], "run `make generate`"


def test_both_clients_have_the_same_methods() -> None:
    python = {
        camel(noun): {camel(name) for name in dir(found) if not name.startswith("_")}
        for noun, found in vars(Client("http://127.0.0.1:1")).items()
        if isinstance(found, Operations)
    }
    python["jobs"].remove("result")  # converts to types of Python
    assert {noun: set(verbs) for noun, verbs in _ran(NAMES, "").items()} == python
    assert len(made()) == len(CALLS) > 90


@pytest.mark.parametrize("operation", CALLS, ids=lambda operation: operation.name)
def test_a_method_sends_the_declared_request(operation: Operation[Any]) -> None:
    call = made()[method_name(operation)]
    parts = urlsplit(call.url)
    query, body = dict(parse_qsl(parts.query)), json.loads(call.body or "null")
    known = arguments(operation)
    assert call.method == operation.method
    assert unquote(parts.path) == re.sub(r"\{\w+\}", "text", operation.path)
    assert set(query) == {one.field for one in known if one.place == "query"}
    assert set(body or {}) == {one.field for one in known if one.place == "body"}
    assert (body is None) == (operation.body is None)
    for one in known:
        if one.duration:
            assert int((query if one.place == "query" else body)[one.field]) == 60_000
    if operation.query is not None:
        msgspec.convert(query, operation.query, strict=False)
    if operation.body is not None:
        msgspec.convert(body, operation.body)
    for one in known:
        if one.struct is not None:
            structs = body[one.field] if get_origin(one.type) is list else [body[one.field]]
            assert all(set(found) == set(one.struct.__struct_fields__) for found in structs)


@pytest.mark.parametrize("operation", CALLS, ids=lambda operation: operation.name)
def test_a_method_returns_the_declared_response(operation: Operation[Any]) -> None:
    expected = sample(operation.response, renamed=True)
    if operation.returns:
        expected = expected[camel(operation.returns)]
    assert made()[method_name(operation)].found == expected


def test_two_operations_do_not_have_the_same_method() -> None:
    assert len({method_name(operation) for operation in CALLS}) == len(CALLS)
