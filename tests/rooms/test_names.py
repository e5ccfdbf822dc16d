"""What may be a name or a step is admitted up to its bound, and nothing beyond."""

from typing import Any

import msgspec
import pytest

from onceward import limits
from onceward.api import room_changes as op
from onceward.errors import BadInput, TooLarge
from onceward.rooms.names import (
    TABLE_ROOMS,
    admit_client,
    admit_name,
    admit_number,
    admit_room,
    admit_step,
    admit_text,
    encoded,
    plain,
)

KEY = limits.ROOM_KEY_BYTES_MAX
NAME = limits.ROOM_NAME_BYTES_MAX


def refusal(act: Any, *args: Any, **more: Any) -> tuple[str, str]:
    with pytest.raises(BadInput) as refused:
        act(*args, **more)
    return refused.value.code, refused.value.message


@pytest.mark.parametrize("text", ["a", "abcd", "é", "éé", "🙂", "\0", " "])
def test_texts_up_to_the_bound_are_admitted(text: str) -> None:
    admit_text(text, "it", 4)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "it must have 1 to 4 bytes, not 0"),
        ("abcde", "it must have 1 to 4 bytes, not 5"),
        ("ééa", "it must have 1 to 4 bytes, not 5"),
        ("\ud800", "it must not contain lone surrogates, as '\\ud800' does"),
        (7, "it must be a string, not int"),
        (b"a", "it must be a string, not bytes"),
        (None, "it must be a string, not NoneType"),
    ],
)
def test_what_is_no_text_or_too_long_is_refused(text: Any, told: str) -> None:
    assert refusal(admit_text, text, "it", 4) == ("bad_name", told)


def test_a_text_may_be_empty_where_it_is_said() -> None:
    admit_text("", "it", 4, empty=True)
    admit_text("abcd", "it", 4, empty=True)
    told = "it must have 0 to 4 bytes, not 5"
    assert refusal(admit_text, "abcde", "it", 4, empty=True) == ("bad_name", told)


def test_rooms_and_names_have_their_own_bounds() -> None:
    admit_room("r" * limits.ROOM_ID_BYTES_MAX)
    assert refusal(admit_room, "r" * (limits.ROOM_ID_BYTES_MAX + 1))[0] == "bad_name"
    admit_name("n" * NAME, "a map's name")
    code, told = refusal(admit_name, "n" * (NAME + 1), "a map's name")
    assert (code, told[:12]) == ("bad_name", "a map's name")


def test_rooms_of_tables_are_named_as_clients_know_them() -> None:
    assert f"{TABLE_ROOMS}t1" == "table:t1"


@pytest.mark.parametrize("client", ["c", "a b~", "c" * limits.ROOM_CLIENT_CHARS_MAX])
def test_clients_have_plain_names(client: str) -> None:
    admit_client(client)


@pytest.mark.parametrize(
    "client", ["", "c" * (limits.ROOM_CLIENT_CHARS_MAX + 1), "é", "a\nb", "\x7f", "\0", 7]
)
def test_what_is_no_name_of_a_client_is_refused(client: Any) -> None:
    assert refusal(admit_client, client)[0] == "bad_name"


def test_numbers_are_whole_and_within_what_a_browser_counts() -> None:
    most = limits.ROOM_NUMBER_MAX
    for n in (1, 2, most):
        admit_number(n)
    admit_number(0, "it", 0)
    for n in (0, -1, most + 1, 1.0, True, "1", None):
        told = f"the number of a step must be 1 to {most}, not {n}"
        assert refusal(admit_number, n) == ("wrong_type", told)
    assert refusal(admit_number, -1, "it", 0) == ("wrong_type", f"it must be 0 to {most}, not -1")


def all_with(name: str = "n", key: str = "k") -> list[op.RoomOperation]:
    """An operation of each kind."""
    return [
        op.MapSet(name, key, 1),
        op.MapDelete(name, key),
        op.MapCompare(name, key, 1),
        op.MapAdd(name, key, 1),
        op.MapMake(name),
        op.MapDrop(name),
        op.ListInsert(name, key, 1),
        op.ListSet(name, key, 1),
        op.ListMove(name, key),
        op.ListDelete(name, key),
        op.ListMake(name),
        op.ListDrop(name),
    ]


def test_operations_of_each_kind_are_admitted_up_to_the_bounds_of_their_names() -> None:
    admit_step(all_with("n" * NAME, "k" * KEY))


@pytest.mark.parametrize("name", ["", "n" * (NAME + 1), "\ud800", 7])
@pytest.mark.parametrize("number", range(12))
def test_operations_of_each_kind_need_the_name_of_a_map_or_list(number: int, name: Any) -> None:
    code, told = refusal(admit_step, [all_with(name)[number]])
    assert code == "bad_name"
    assert told.startswith("a map's name" if number < 6 else "a list's name")


@pytest.mark.parametrize("key", ["k" * (KEY + 1), "\ud800", 7])
def test_keys_and_items_have_names_too(key: Any) -> None:
    for does in all_with(key=key):
        if hasattr(does, "key") or hasattr(does, "id"):
            code, told = refusal(admit_step, [does])
            assert code == "bad_name"
            assert told.startswith("a map's key" if hasattr(does, "key") else "an item's id")


def test_a_key_may_be_empty_and_an_item_s_id_may_not() -> None:
    for does in all_with(key=""):
        if hasattr(does, "id"):
            assert refusal(admit_step, [does])[0] == "bad_name"
        else:
            admit_step([does])


def placed(**where: Any) -> list[op.RoomOperation]:
    return [op.ListInsert("l", "i", 1, **where), op.ListMove("l", "i", **where)]


@pytest.mark.parametrize("after", [None, "", "j", "j" * KEY])
@pytest.mark.parametrize("at", [None, "a0", "Zz"])
def test_an_item_goes_behind_another_or_to_a_position(after: str | None, at: str | None) -> None:
    admit_step(placed(after=after, at=at))


@pytest.mark.parametrize(
    ("where", "code"),
    [
        ({"after": "j" * (KEY + 1)}, "bad_name"),
        ({"after": 7}, "bad_name"),
        ({"at": ""}, "bad_value"),
        ({"at": "?"}, "bad_value"),
        ({"after": "j", "at": "?"}, "bad_value"),
    ],
)
def test_an_item_goes_nowhere_else(where: Any, code: str) -> None:
    for does in placed(**where):
        assert refusal(admit_step, [does])[0] == code


def test_a_step_has_some_operations_and_not_too_many() -> None:
    admit_step([op.MapMake("m")])
    admit_step([op.MapMake("m")] * limits.ROOM_OPS_MAX)
    assert refusal(admit_step, [])[0] == "bad_request"
    with pytest.raises(TooLarge) as refused:
        admit_step([op.MapMake("m")] * (limits.ROOM_OPS_MAX + 1))
    assert refused.value.code == "value_too_large"


def test_a_step_is_as_large_as_may_be_and_no_larger() -> None:
    empty = len(msgspec.json.encode([op.MapSet("m", "k", "")]))
    fits = limits.ROOM_STEP_BYTES_MAX - empty
    admit_step([op.MapSet("m", "k", "x" * fits)])
    with pytest.raises(TooLarge) as refused:
        admit_step([op.MapSet("m", "k", "x" * (fits + 1))])
    assert refused.value.code == "value_too_large"


@pytest.mark.parametrize("does", [7, None, "map.set", {"op": "map.make", "map": "m"}])
def test_what_is_no_operation_is_refused(does: Any) -> None:
    assert refusal(admit_step, [op.MapMake("m"), does]) == (
        "wrong_type",
        f"{does!r} is not an operation; use one such as map.set",
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {"a": {1: {2}.pop}}])
def test_what_json_cannot_say_is_refused(value: Any) -> None:
    for act in (encoded, plain):
        code, told = refusal(act, value)
        assert code == "bad_value"
        assert told.startswith("not JSON: ")
    assert refusal(admit_step, [op.MapSet("m", "k", value)])[0] == "bad_value"


LARGE = [2**53, -(2**53), 2**53 + 1, 2**64, 10**30, 2.0**53, 1e16, -1e16, 1.5e300]


@pytest.mark.parametrize("number", LARGE)
def test_numbers_that_a_browser_would_round_are_refused(number: float) -> None:
    for value in (number, [1, {"deep": [number]}], {"a": "text", "b": number}):
        code, told = refusal(plain, value)
        assert code == "bad_value"
        assert f"the number {number} is outside ±9007199254740991" in told
        for does in (
            op.MapSet("m", "k", value),
            op.MapCompare("m", "k", value),
            op.MapCompare("m", "k", 1, value),
            op.ListInsert("l", "i", value),
            op.ListSet("l", "i", value),
        ):
            assert refusal(admit_step, [op.MapMake("m"), does]) == (code, told)
    assert refusal(admit_step, [op.MapAdd("m", "k", number)])[0] == "bad_value"


@pytest.mark.parametrize(
    "value",
    [
        *(2**53 - 1, 1 - 2**53, float(2**53 - 1), 0.1 + 0.2, 1234567890.1234567, 1e-300, 1e15),
        *("9" * 30, "1e99", {"9007199254740993": "1e16"}),
    ],
)
def test_numbers_up_to_the_limit_and_texts_are_admitted(value: Any) -> None:
    assert plain([value]) == [value]


def test_a_plain_value_is_as_others_see_it_and_nobody_else_s() -> None:
    inner = [1, 2]
    value = {"list": inner, "pair": (1, None), "text": "é"}
    assert encoded(value) == '{"list":[1,2],"pair":[1,null],"text":"é"}'.encode()
    found = plain(value)
    assert found == {"list": [1, 2], "pair": [1, None], "text": "é"}
    inner.append(3)
    assert found["list"] == [1, 2]
