"""Values of declared types and their JSON, with the path of whatever does not fit."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pytest
from msgspec import Meta

from onceward.conversion import converter, plain_body, plain_value
from onceward.errors import BadInput
from tests.needs import need

pydantic = need("pydantic")


class Colour(Enum):
    RED = "red"


@dataclass
class Person:
    name: str
    age: Annotated[int, Meta(ge=0)] = 0


@dataclass
class Mail:
    to: list[Person]
    at: datetime
    colour: Colour = Colour.RED
    parts: dict[int, bytes] = field(default_factory=dict)


class Struct(msgspec.Struct, forbid_unknown_fields=True):
    id: UUID
    price: Decimal = Decimal(1)


class Typed(TypedDict):
    name: str
    age: NotRequired[int]


class Point(NamedTuple):
    x: int
    y: int


class Model(pydantic.BaseModel):  # type: ignore[misc,name-defined,unused-ignore]
    to: str
    sent: datetime | None = None
    address: str = pydantic.Field("", alias="mailAddress")

    @pydantic.computed_field  # type: ignore[prop-decorator,untyped-decorator,unused-ignore]
    @property
    def shout(self) -> str:
        return self.to.upper()


class Strict(pydantic.BaseModel):  # type: ignore[misc,name-defined,unused-ignore]
    model_config = pydantic.ConfigDict(extra="forbid")
    models: list[Model]


@pydantic.dataclasses.dataclass
class Checked:
    at: datetime


@dataclass
class WithModel:
    model: Model
    others: list[Model] = field(default_factory=list)


class Plain:
    to: str


WHEN = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)
VALUES: dict[str, tuple[Any, Any]] = {
    "dataclass": (Mail, Mail([Person("Ann", 3)], WHEN, parts={1: b"\xff"})),
    "struct": (Struct, Struct(UUID(int=5), Decimal("1.50"))),
    "TypedDict": (Typed, {"name": "Ann"}),
    "named tuple": (Point, Point(1, 2)),
    "list of dataclasses": (list[Person], [Person("Ann"), Person("Bob", 7)]),
    "or none": (Person | None, None),
    "set": (set[int], {1, 2}),
    "literal": (Literal["a", "b"], "a"),
    "model": (Model, Model(to="Ann", sent=WHEN, mailAddress="x")),
    "models in a model": (Strict, Strict(models=[Model(to="Ann")])),
    "list of models": (list[Model], [Model(to="Ann")]),
    "models or structs of Pydantic": (dict[str, Model | int], {"a": Model(to="A"), "b": 1}),
    "dataclass of Pydantic": (Checked, Checked(at=WHEN)),
    "models in a dataclass": (WithModel, WithModel(Model(to="A"), [Model(to="B")])),
    "field of Pydantic": (Annotated[int, pydantic.Field(gt=0)], 5),
    "secret of Pydantic": (pydantic.AnyUrl, pydantic.AnyUrl("https://example.com/x")),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_comes_back_as_what_it_was(name: str) -> None:
    type_, value = VALUES[name]
    found = converter(type_)
    assert found is not None
    plain = found.plain(value, "body")
    assert msgspec.json.encode(plain) == json.dumps(plain, separators=(",", ":")).encode()
    assert found.read(msgspec.json.encode(plain), "body") == value


INVALID: list[tuple[Any, Any, str]] = [
    (Person, {"name": 5}, "body.name: expected str, got int"),
    (Person, {}, "body.name: missing"),
    (Person, [], "body: expected object, got array"),
    (Person, {"name": "x", "age": -1}, "body.age: expected int >= 0"),
    (Mail, {"to": [{"name": "x"}, {"name": None}]}, "body.to[1].name: expected str, got null"),
    (Mail, {"to": [{}], "at": "x"}, "body.to[0].name: missing"),
    (Mail, {"to": [], "at": 5.5, "parts": 1}, "body.at: expected datetime, got float"),
    (Mail, {"parts": {"x": "x"}}, "body.parts: a key: expected int, got str"),
    (Mail, {"colour": "blue"}, "body.colour: invalid enum value 'blue'"),
    (Struct, {"id": str(UUID(int=1)), "x": 1}, "body.x: unknown field"),
    (Typed, {"age": 1}, "body.name: missing"),
    (list[dict[str, int]], [{"a": "b"}], "body[0][...]: expected int, got str"),
    (Model, {}, "body.to: missing"),
    (Model, {"to": 5}, "body.to: input should be a valid string, got int"),
    (Model, 5, "body: input should be an object, got int"),
    (list[Model], [{"to": "x"}, {"to": None}], "body[1].to: input should be a valid string, "),
    (Strict, {"models": [{}], "x": 1}, "body.models[0].to: missing; body.x: extra inputs are not "),
    (WithModel, {"model": {"to": 1}}, "body.model.to: input should be a valid string, got int"),
    (
        WithModel,
        {"model": {"to": ""}, "others": [{"sent": "never"}]},
        "body.others[0].to: missing; body.others[0].sent: input should be a valid datetime",
    ),
    (list[Model], [{}] * 7, "body[4].to: missing; body: 2 more"),
]


@pytest.mark.parametrize(("type_", "value", "problem"), INVALID)
def test_what_does_not_fit_is_named_by_its_path(type_: Any, value: Any, problem: str) -> None:
    found = converter(type_)
    assert found is not None
    with pytest.raises(BadInput) as error:
        found.read(msgspec.json.encode(value), "body")
    assert problem in error.value.message
    assert error.value.code == "wrong_type"


def test_a_value_of_another_type_is_refused_before_it_is_stored() -> None:
    person, model = converter(Person), converter(Model)
    assert person is not None
    assert model is not None
    given: Any = 5
    with pytest.raises(BadInput, match=r"^body\.name: expected str, got int"):
        person.plain(Person(given), "body")
    with pytest.raises(BadInput, match=r"^body\.to: input should be a valid string, got int"):
        model.plain(Model.model_construct(to=5), "body")
    with pytest.raises(BadInput, match=r"^body: ") as error:
        person.plain({"name": object()}, "body")
    assert error.value.code == "bad_value"
    with pytest.raises(BadInput, match=r"^body: ") as error:
        model.plain(object(), "body")
    assert error.value.code == "bad_value"
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(BadInput, match=r"^body: "):
        person.plain(endless, "body")


class Undefined(pydantic.BaseModel):  # type: ignore[misc,name-defined,unused-ignore]
    x: "NotDefinedAnywhere"  # type: ignore[name-defined] # noqa: F821


@dataclass
class Deep:
    plain: dict[str, list[Plain]]


@pytest.mark.parametrize(
    ("type_", "why"),
    [
        (Plain, "Plain is not a dataclass, TypedDict, msgspec struct or Pydantic model"),
        (Deep, "Plain is not a dataclass"),
        (list[Plain], "list[tests.test_conversion.Plain] cannot be converted"),
        (Callable[[], int], "Callable is not a dataclass"),
        (Awaitable[int], "Awaitable is not a dataclass"),
        (complex, "complex is not a dataclass"),
        (Person | Typed, "more than one"),
        ("Person", "not supported"),
        (5, "not supported"),
        (list[Struct | Model], "the type list["),
        (Undefined, "NotDefinedAnywhere"),
        (Annotated[Plain, {}], "Plain is not a dataclass"),
    ],
)
def test_a_type_that_cannot_be_converted_is_refused_by_name(type_: Any, why: str) -> None:
    for _ in range(2):  # a refusal is not a reason to accept it the next time
        with pytest.raises(BadInput, match="cannot be converted from JSON") as error:
            converter(type_)
        assert why in error.value.message


def test_types_that_say_nothing_have_no_converter() -> None:
    assert converter(Any) is None
    assert converter(object) is None
    hashless = Annotated[int, Meta(extra={"a": 1})]
    found = converter(hashless)
    assert found is not None
    assert found.read(b"5", "body") == 5


def test_a_body_is_plain_and_plain_ones_are_left_alone() -> None:
    plain = {"a": Person("Ann")}
    assert plain_value(plain) is plain
    assert plain_body(Person("Ann")) == {"name": "Ann", "age": 0}
    assert plain_body(Model(to="x")) == {"to": "x", "sent": None, "mailAddress": ""}
    assert plain_body({1}) == [1]
    with pytest.raises(BadInput, match=r"the body cannot be stored: .*object"):
        plain_body(object())
