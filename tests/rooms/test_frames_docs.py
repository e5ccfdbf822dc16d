"""The page on the protocol names every frame and operation with its members, and true codes."""

import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from onceward.api.room_changes import RoomOperation
from onceward.errors import TABLE
from onceward.rooms.frames import ClientFrame, ServerFrame

PAGE = Path("docs/rooms-protocol.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| `")]
TAGGED = [*get_args(ClientFrame), *get_args(ServerFrame), *get_args(RoomOperation)]


def tag(kind: Any) -> str:
    return str(kind.__struct_config__.tag)


@pytest.mark.parametrize("kind", TAGGED, ids=tag)
def test_a_frame_or_operation_is_on_the_page_with_all_of_its_members(kind: Any) -> None:
    rows = [row for row in ROWS if f"`{tag(kind)}`" in row.split("|")[1]]
    assert rows
    for field in msgspec.structs.fields(kind):
        assert any(f"`{field.encode_name}`" in row for row in rows), field.name


def codes() -> list[tuple[str, str, str]]:
    table = PAGE[PAGE.index("| code |") :]
    found = []
    for line in table.splitlines()[2:]:
        names, close, again = [cell.strip() for cell in line.split("|")[1:4]]
        found += [(name, close, again) for name in re.findall(r"`([a-z_]+)`", names)]
    return found


@pytest.mark.parametrize(("code", "close", "again"), codes())
def test_a_code_on_the_page_is_as_in_the_table_of_errors(code: str, close: str, again: str) -> None:
    kind = TABLE[code]
    assert close in ("", str(kind.close))
    assert again == ("yes" if kind.retry else "no")


def test_the_codes_of_rooms_are_on_the_page() -> None:
    own = {code for code in TABLE if "room" in code or "frame" in code}
    assert own - {code for code, _, _ in codes()} == {"room_exists", "too_many_rooms"}
