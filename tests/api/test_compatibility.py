"""Clients accept the responses of newer servers, and servers reject what they do not know."""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
import pytest
from msgspec import inspect as types

from onceward.api import OPERATIONS
from onceward.api.operation import Body, Operation
from onceward.api.tables import Policy, Table
from onceward.api.timers import Timer

ANSWERED = [one for one in OPERATIONS.values() if one.response is not None]
ASKED = [one for one in OPERATIONS.values() if one.body is not None]


def inner(info: types.Type) -> Iterator[types.Type]:
    """The types in a type, each struct once."""
    seen: set[type] = set()
    left = [info]
    while left:
        one = left.pop()
        if isinstance(one, types.StructType):
            if one.cls in seen:
                continue
            seen.add(one.cls)
            left += [field.type for field in one.fields]
        elif isinstance(one, types.Metadata):
            left.append(one.type)
        elif isinstance(one, types.UnionType):
            left += one.types
        elif isinstance(one, types.DictType):
            left += [one.key_type, one.value_type]
        elif isinstance(one, types.CollectionType):
            left.append(one.item_type)
        elif isinstance(one, types.TupleType):
            left += one.item_types
        yield one


def fixed(response: Any) -> list[str]:
    """The parts of a response that reject what a newer server may add."""
    found = []
    for one in inner(types.type_info(response)):
        strict = isinstance(one, types.LiteralType | types.EnumType)
        if isinstance(one, types.StructType):
            strict = one.forbid_unknown_fields or one.tag is not None
        bounded = any(getattr(one, name, None) is not None for name in ("le", "lt", "max_length"))
        if strict or bounded:
            found.append(repr(one))
    return found


@pytest.mark.parametrize("operation", ANSWERED, ids=lambda operation: operation.name)
def test_responses_can_grow(operation: Operation[Any]) -> None:
    assert fixed(operation.response) == []


@pytest.mark.parametrize("operation", ASKED, ids=lambda operation: operation.name)
def test_requests_reject_unknown_members(operation: Operation[Any]) -> None:
    structs = [
        one for one in inner(types.type_info(operation.body)) if isinstance(one, types.StructType)
    ]
    assert [one.cls.__name__ for one in structs if not one.forbid_unknown_fields] == []


class Shared(Body):
    member: int = 0


class Tagged(msgspec.Struct, tag="a"):
    member: int = 0


@pytest.mark.parametrize(
    "planted", [Shared, Tagged, Literal["a", "b"], Policy, tuple[int, Shared]], ids=repr
)
def test_a_planted_part_that_cannot_grow_is_found(planted: Any) -> None:
    response = msgspec.defstruct("Response", [("inside", dict[str, list[planted]] | None)])
    assert fixed(response)


def test_a_client_reads_what_a_newer_server_adds() -> None:
    table = Table("t", "dreaming", 1, {}, 0, 0, Policy())
    sent = msgspec.to_builtins(table)
    sent |= {"mood": "good", "policy": {"kind": "blitz", "draw": "toss", "colors": ["red"]}}
    found = msgspec.convert(sent, Table)
    assert (found.phase, found.policy.kind, found.policy.draw) == ("dreaming", "blitz", "toss")
    timer = {"id": "a", "state": "new", "due": "", "due_ms": 1, "left_ms": 1, "created_ms": 1}
    timer |= {"fired": 0, "catch_up": "some", "retry": {"timeout_ms": 5, "spread": 2}}
    read = msgspec.convert(timer, Timer)
    assert read.catch_up == "some"
    assert read.retry is not None
    assert read.retry.timeout_ms == 5
