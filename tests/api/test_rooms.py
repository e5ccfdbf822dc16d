"""The operations on maps, lists and presences of rooms are alike."""

import pytest

from onceward.api import OPERATIONS
from onceward.api.operation import Operation


def members(operation: Operation[object]) -> dict[str, object]:
    """An operation, with the word for its contents left open."""
    what = operation.name.rpartition("_")[2]
    left_open = ("name", "path", "method", "summary", "scope", "body", "errors")
    found = {name: getattr(operation, name) for name in left_open}
    return {
        name: value.replace(what, "WHAT") if isinstance(value, str) else value
        for name, value in found.items()
    }


@pytest.mark.parametrize("verb", ["get", "put", "delete"])
def test_maps_and_lists_have_the_same_operations(verb: str) -> None:
    of_maps, of_lists = OPERATIONS[f"rooms.{verb}_map"], OPERATIONS[f"rooms.{verb}_list"]
    assert members(of_maps) == members(of_lists)
    assert of_maps.path == "/v1/rooms/{id}/maps/{name}"


def test_a_presence_is_not_stored_and_deleted_by_managers_of_the_room() -> None:
    assert "not_found" not in OPERATIONS["rooms.get_presence"].errors
    assert OPERATIONS["rooms.delete_presence"].scope == "room:{id}"
    assert OPERATIONS["rooms.put_presence"].scope == "write:{id}"
