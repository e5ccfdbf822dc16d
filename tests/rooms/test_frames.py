"""Frames are read strictly, and the table of errors says what to do when a connection closes."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import limits
from onceward.errors import TABLE, BadInput
from onceward.rooms.frames import PROTOCOL, encode, read_client, read_server, reconnects

VECTORS = json.loads(Path("tests/vectors/rooms/frames.json").read_text())


def text(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@pytest.mark.parametrize("frame", VECTORS["client"], ids=lambda frame: frame["t"])
def test_a_frame_of_a_client_is_the_same_when_written_again(frame: Any) -> None:
    assert json.loads(encode(read_client(text(frame)))) == frame


@pytest.mark.parametrize("frame", VECTORS["server"], ids=lambda frame: frame["t"])
def test_a_frame_of_a_server_is_the_same_when_written_again(frame: Any) -> None:
    assert json.loads(encode(read_server(text(frame)))) == frame


@pytest.mark.parametrize("bad", VECTORS["refused"], ids=lambda bad: bad["code"])
def test_what_is_no_frame_is_refused_with_the_code_for_it(bad: dict[str, str]) -> None:
    raw = bytes.fromhex(bad["hex"]) if "hex" in bad else bad["text"].encode()
    with pytest.raises(BadInput) as refused:
        read_client(raw)
    assert refused.value.code == bad["code"]
    assert len(refused.value.message) < 1_000


def test_a_frame_as_large_as_may_be_is_read_and_a_larger_one_is_not() -> None:
    start, end = b'{"t":"say","room":"r","event":"e","value":"', b'"}'
    fits = limits.FRAME_BYTES_MAX - len(start) - len(end)
    read_client(start + b"x" * fits + end)
    with pytest.raises(BadInput) as refused:
        read_client(start + b"x" * (fits + 1) + end)
    assert refused.value.code == "frame_too_large"


DEFAULTS: dict[str, dict[str, Any]] = {
    '{"t":"hello"}': {"token": ""},
    '{"t":"join","room":"r","client":"c"}': {
        "epoch": "",
        "seq": 0,
        "steps": [],
        "create": False,
        "digest": "",
    },
    '{"t":"presence.set","room":"r","name":"n","value":1}': {"ttl_ms": 60_000},
    '{"t":"say","room":"r","event":"e"}': {"value": None},
    '{"t":"tell","room":"r","to":"m","event":"e"}': {"value": None},
    '{"t":"act","n":1,"do":"draw"}': {"table": "", "body": {}},
    '{"t":"welcome","user":"ann"}': {"until_ms": None, "beat_ms": 0},
    '{"t":"joined","room":"r","epoch":"e","seq":1,"n":0,"me":"m","members":[],"presences":{}}': {
        "reset": "",
        "known": 0,
        "skipped": (),
        "count": 0,
    },
    '{"t":"snapshot","room":"r","seq":1,"maps":{},"lists":{}}': {"more": False},
    '{"t":"change","room":"r","seq":1,"ops":[]}': {"by": "", "client": "", "n": 0},
    '{"t":"refused","room":"r","n":1,"code":"c"}': {"detail": ""},
    '{"t":"crowd","room":"r"}': {"count": 0},
    '{"t":"said","room":"r","event":"e"}': {"value": None, "sender": "", "by": "", "direct": False},
    '{"t":"left","room":"r","code":"c"}': {"detail": ""},
    '{"t":"done","n":1}': {"value": None},
    '{"t":"failed","n":1,"code":"c"}': {"detail": ""},
    '{"t":"error","code":"c"}': {"detail": "", "room": ""},
}


@pytest.mark.parametrize("raw", DEFAULTS)
def test_what_a_frame_leaves_out_has_a_meaning(raw: str) -> None:
    try:
        frame: Any = read_client(raw.encode())
    except BadInput:
        frame = read_server(raw)
    assert {name: getattr(frame, name) for name in DEFAULTS[raw]} == DEFAULTS[raw]
    assert json.loads(encode(frame)) == json.loads(raw)


@pytest.mark.parametrize("reset", ["", "new", "gap", "ahead", "epoch", "forgotten"])
def test_a_joined_client_is_told_why_it_starts_anew(reset: str) -> None:
    (frame, *_) = (frame for frame in VECTORS["server"] if frame["t"] == "joined")
    joined: Any = read_server(text({**frame, "reset": reset}))
    assert joined.reset == reset
    with pytest.raises(BadInput):
        read_server(text({**frame, "reset": f"{reset}x"}))


def test_the_protocol_has_the_name_by_which_clients_ask_for_it() -> None:
    assert PROTOCOL == "onceward.rooms.1"


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_refused_with_a_code(raw: bytes) -> None:
    status = 200
    try:
        read_client(raw)
    except BadInput as error:
        status = error.kind.status
    assert status in (200, 400, 413, 422)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_a_client_takes_what_a_newer_server_says_more(extra: Any) -> None:
    frame = read_server(text({"t": "pong", "extra": extra}).decode("utf-8", "replace"))
    assert encode(frame) == b'{"t":"pong"}'


@pytest.mark.parametrize(
    "raw", [b"", b"{", b'{"t":"hello"}', b'{"t":"ack"}', b"\xff", b"[" * 9_999]
)
def test_what_is_no_frame_of_a_server_is_an_error_of_its_own(raw: bytes) -> None:
    with pytest.raises(BadInput) as refused:
        read_server(raw)
    assert refused.value.code == "not_json"


@pytest.mark.parametrize("code", TABLE)
def test_a_closed_connection_is_made_again_where_the_table_says_that_it_helps(code: str) -> None:
    assert reconnects(TABLE[code].close, code) == TABLE[code].retry


def test_without_a_reason_only_numbers_that_always_pass_are_tried_again() -> None:
    passing = [1000, 1001, 1005, 1006, 1011, 1012, 1013, 1014]
    assert [close for close in range(4000) if reconnects(close)] == passing
    assert reconnects(4429)
    assert not any(reconnects(close) for close in (4400, 4401, 4403, 4409, 4410))
    assert reconnects(1006, "room_deleted"), "a reason counts only with its own number"
