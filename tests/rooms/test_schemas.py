"""Values fit their schema or are refused, and so are schemas that are not known."""

from typing import Any

import msgspec
import pytest

from onceward import limits
from onceward.api.rooms import Schemas
from onceward.errors import BadInput
from onceward.rooms.schemas import Shapes

CURSOR = {
    "title": "a cursor",
    "type": "object",
    "properties": {
        "x": {"type": "integer", "minimum": 0, "maximum": 100},
        "name": {"type": ["string", "null"], "minLength": 1, "maxLength": 3},
        "path": {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 2},
        "mode": {"enum": ["draw", "erase", 1]},
        "kind": {"const": True},
        "any": {"anyOf": [{"type": "boolean"}, {"type": "string", "maxLength": 1}]},
    },
    "required": ["x"],
    "additionalProperties": False,
}


def shapes(schema: Any) -> Shapes:
    return Shapes(Schemas(presences={"cursor": schema}, maps={"free": {}}))


@pytest.mark.parametrize(
    "value",
    [
        {"x": 0},
        {"x": 100.0, "name": None, "path": [1.5], "mode": 1, "kind": True, "any": "a"},
        {"x": 1, "name": "abc", "path": [1, 2], "mode": "draw", "any": False},
    ],
)
def test_what_fits_is_admitted(value: Any) -> None:
    shapes(CURSOR).admit("presence", "cursor", value)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (7, "type object"),
        ({}, "lacks the member 'x'"),
        ({"x": 0.5}, "'x', is not of the type integer"),
        ({"x": True}, "type integer"),
        ({"x": -1}, "less than 0"),
        ({"x": 101}, "more than 100"),
        ({"x": 1, "y": 2}, "unknown member 'y'"),
        ({"x": 1, "y" * 101: 2}, f"unknown member '{'y' * 100}'"),
        ({"x": 1, "name": 2}, "'name', is not of the type string or null"),
        ({"x": 1, "name": ""}, "fewer characters than 1"),
        ({"x": 1, "name": "abcd"}, "more characters than 3"),
        ({"x": 1, "path": []}, "fewer items than 1"),
        ({"x": 1, "path": [1, 2, 3]}, "more items than 2"),
        ({"x": 1, "path": [1, "2"]}, "item 1, is not of the type number"),
        ({"x": 1, "mode": True}, "not one of the allowed values"),
        ({"x": 1, "kind": 1}, "not one of the allowed values"),
        ({"x": 1, "any": "ab"}, "matches none"),
    ],
)
def test_what_does_not_fit_is_refused_and_told_where(value: Any, told: str) -> None:
    with pytest.raises(BadInput, match=told) as refused:
        shapes(CURSOR).admit("presence", "cursor", value)
    assert refused.value.code == "bad_shape"


def test_numbers_of_any_size_are_compared() -> None:
    bounded = shapes({"minimum": -1.5, "maximum": 1.5})
    for value in (10**400, -(10**400)):
        with pytest.raises(BadInput) as refused:
            bounded.admit("presence", "cursor", value)
        assert refused.value.code == "bad_shape"


def test_names_without_a_schema_take_anything() -> None:
    for kind, name in (("presence", "other"), ("map", "cursor"), ("map", "free")):
        shapes(CURSOR).admit(kind, name, object)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "schema",
    [
        [],
        {"pattern": "a"},
        {"type": "text"},
        {"type": []},
        {"type": {}},
        {"enum": []},
        {"minimum": "1"},
        {"minLength": -1},
        {"maxItems": 1.5},
        {"items": 1},
        {"properties": []},
        {"properties": {"a": {"odd": 1}}},
        {"required": "a"},
        {"additionalProperties": {}},
        {"anyOf": []},
        {"anyOf": [7]},
        {"description": "x" * 70_000},
    ],
)
def test_what_is_no_schema_is_refused_at_once(schema: Any) -> None:
    with pytest.raises(BadInput) as refused:
        shapes(schema)
    assert refused.value.code == "bad_schema"
    assert len(refused.value.message) < 500


def test_a_word_that_is_not_known_is_told_with_those_that_are() -> None:
    with pytest.raises(
        BadInput, match=r"'pattern' .* supported are additionalProperties, anyOf, const, "
    ):
        shapes({"pattern": "a"})


def nested(depth: int) -> dict[str, Any]:
    return {"items": nested(depth - 1)} if depth > 1 else {}


def test_schemas_are_in_each_other_so_deeply_and_no_deeper() -> None:
    shapes(nested(20))
    with pytest.raises(BadInput, match="too deeply") as refused:
        shapes(nested(21))
    assert refused.value.code == "bad_schema"


def test_schemas_are_so_large_and_no_larger() -> None:
    def sized(size: int) -> Schemas:
        empty = len(msgspec.json.encode(Schemas(maps={"m": {"description": ""}})))
        return Schemas(maps={"m": {"description": "x" * (size - empty)}})

    Shapes(sized(limits.ROOM_SCHEMAS_BYTES_MAX))
    with pytest.raises(BadInput) as refused:
        Shapes(sized(limits.ROOM_SCHEMAS_BYTES_MAX + 1))
    assert refused.value.code == "bad_schema"


@pytest.mark.parametrize("word", ["title", "description", "default"])
def test_words_that_say_nothing_are_taken(word: str) -> None:
    shapes({word: "x"}).admit("presence", "cursor", {"any": "thing"})


@pytest.mark.parametrize(
    ("word", "fits", "more"),
    [
        ("maxLength", "", "a"),
        ("maxItems", [], [1]),
        ("minLength", "", None),
        ("minItems", [], None),
    ],
)
def test_a_bound_may_be_zero(word: str, fits: Any, more: Any) -> None:
    bounded = shapes({word: 0})
    bounded.admit("presence", "cursor", fits)
    if more is not None:
        with pytest.raises(BadInput):
            bounded.admit("presence", "cursor", more)


@pytest.mark.parametrize("said", [True, False])
def test_members_that_are_not_known_are_refused_only_where_it_is_said(said: bool) -> None:
    open_ = shapes({"properties": {"a": {}}, "additionalProperties": said})
    for value in ({}, {"a": 1}, 7, None, [1], "text"):
        open_.admit("presence", "cursor", value)
    if said:
        open_.admit("presence", "cursor", {"a": 1, "b": 2})
    else:
        with pytest.raises(BadInput, match="unknown member 'b'"):
            open_.admit("presence", "cursor", {"a": 1, "b": 2})


def test_each_kind_has_its_own_schemas() -> None:
    room = Shapes(
        Schemas(
            maps={"x": {"type": "string"}},
            lists={"x": {"type": "integer"}},
            presences={"x": {"type": "null"}},
        )
    )
    values = {"map": "text", "list": 1, "presence": None}
    for kind in values:
        for other, value in values.items():
            if kind == other:
                room.admit(kind, "x", value)  # type: ignore[arg-type]
            else:
                with pytest.raises(BadInput):
                    room.admit(kind, "x", value)  # type: ignore[arg-type]


def test_it_is_known_whether_there_is_a_schema_at_all() -> None:
    assert not Shapes().any
    assert shapes({}).any


@pytest.mark.parametrize(
    ("schema", "value", "checks"),
    [
        ({"title": "says nothing"}, 1, 1),
        ({"type": "number", "minimum": 0}, 1, 3),
        ({"items": {"type": "number"}}, [1, 2, 3], 8),
        ({"enum": [1, [2, {"a": 3}]]}, 1, 8),
        ({"properties": {"a": {}, "b": {}}}, {"a": 1}, 5),
        ({"properties": {"a": {}, "b": {}}}, 7, 2),
        ({"anyOf": [{"type": "string"}, {"type": "number"}, {}]}, 1, 14),
    ],
)
def test_a_value_is_compared_only_so_often(
    schema: Any, value: Any, checks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ROOM_CHECKS_MAX", checks)
    shapes(schema).admit("presence", "cursor", value)
    monkeypatch.setattr(limits, "ROOM_CHECKS_MAX", checks - 1)
    with pytest.raises(BadInput, match=f"more than {checks - 1} comparisons") as refused:
        shapes(schema).admit("presence", "cursor", value)
    assert refused.value.code == "bad_shape"


def test_alternatives_end_with_the_work() -> None:
    hopeless = shapes({"items": {"anyOf": [{"anyOf": [{"const": 0}] * 100}] * 20}})
    with pytest.raises(BadInput, match="comparisons"):
        shapes({"items": {"anyOf": [*[{"const": 0}] * 2_000, {}]}}).admit(
            "presence", "cursor", [1] * 100
        )
    with pytest.raises(BadInput, match="matches none"):
        hopeless.admit("presence", "cursor", [1])


def test_the_largest_plain_value_of_a_step_can_be_compared() -> None:
    shapes({"items": {"type": "integer"}}).admit(
        "presence", "cursor", [1] * (limits.ROOM_STEP_BYTES_MAX // 2)
    )


def test_values_of_a_step_are_compared_so_often_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROOM_CHECKS_MAX", 5)
    room = shapes({"type": "integer"})
    admit = room.step()
    for _ in range(2):
        admit("presence", "cursor", 1)
        admit("map", "other", 1)  # has no schema
    with pytest.raises(BadInput, match="comparisons"):
        admit("presence", "cursor", 1)
    room.step()("presence", "cursor", 1)  # another step is another one
