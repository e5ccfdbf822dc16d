"""Whatever bytes come, they are a frame or refused with a code, and no one else's trouble.

`ONCEWARD_TEXTS=500000` makes a short piece of the long run.
"""

import json
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from onceward.errors import BadInput
from onceward.rooms.frames import encode, read_client
from onceward.rooms.names import admit_step
from onceward.rooms.room import Room

pytestmark = [pytest.mark.fuzz, pytest.mark.no_cover]

TEXTS, SOAK_TEXTS = 20_000, int(os.environ.get("ONCEWARD_TEXTS", "10000000"))
VECTORS = json.loads(Path("tests/vectors/rooms/frames.json").read_text())
PIECES = [
    *(b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\u0000", b"\\ud800", b"\xff", b"\x00"),
    *(b"null", b"true", b"1e999", b"-0", b"NaN", b"0.1", b"9" * 400, b"[" * 120),
    *(b'"t"', b"\xc3\xa9"),
    *(b'"t":"ops"', b'"ops":[]', b'"room":"r"', b'{"op":"map.set"}', b'"a":1,"a":2', b" ", b"\n"),
]
VALUES: list[Any] = [
    *(None, True, 0, -1, 1.5, 2**53, 10**30, "", "a", "é\x00\U0001f600", "a0", "Zz", "x" * 300),
    *([], {}, [[]], {"a": {"b": [1, None]}}, {"op": "map.make", "map": "m"}),
]
CODES = {
    *("not_json", "not_text", "not_a_number", "duplicate_member", "too_deep"),
    *("unknown_frame", "wrong_type", "unknown_member", "missing_member", "frame_too_large"),
}


def seeds() -> list[bytes]:
    frames = [json.dumps(frame).encode() for frame in (*VECTORS["client"], *VECTORS["server"])]
    bad = [text["text"].encode() for text in VECTORS["refused"] if "text" in text]
    return frames + bad


def remade(random: Random) -> bytes:
    """A frame with another value somewhere in it."""
    frame = json.loads(json.dumps(random.choice(VECTORS["client"])))
    inside, step = frame, random.choice(list(frame))
    while isinstance(inside[step], dict | list) and inside[step] and random.random() < 0.8:
        inside = inside[step]
        step = random.choice(list(inside) if isinstance(inside, dict) else range(len(inside)))
    inside[step] = random.choice(VALUES)
    return json.dumps(frame, ensure_ascii=random.random() < 0.5).encode()


def mutated(random: Random, texts: list[bytes]) -> bytes:
    if random.random() < 0.3:
        return remade(random)
    text = bytearray(random.choice(texts))
    for _ in range(random.randint(1, 4)):
        at = random.randint(0, len(text))
        what = random.randrange(5)
        if what == 0:
            text[at:at] = random.choice(PIECES)
        elif what == 1:
            del text[at : at + random.randint(1, 8)]
        elif what == 2 and text:
            text[at % len(text)] = random.randrange(256)
        elif what == 3:
            other = random.choice(texts)
            start = random.randint(0, len(other))
            text[at:at] = other[start : start + random.randint(1, 40)]
        else:
            end = at + random.randint(1, 20)
            text[at:at] = text[at:end]
    return bytes(text)


def sound(text: bytes) -> bool:
    """What another reader of JSON says of it."""

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a member is there twice")
        return dict(pairs)

    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        json.loads(text.decode(), object_pairs_hook=distinct, parse_constant=refuse)
    except (ValueError, RecursionError):
        return False
    return True


def test_bytes_made_up_from_frames_are_frames_or_refused(soak: bool) -> None:
    seed = Random().randrange(1 << 32) if soak else 1
    print(f"seed {seed}")
    random, texts = Random(seed), seeds()
    taken = refused = 0
    for _ in range(SOAK_TEXTS if soak else TEXTS):
        text = mutated(random, texts)
        try:
            frame = read_client(text)
        except BadInput as error:
            assert error.code in CODES, (text, error)  # noqa: PT017 - any number of them
            refused += 1
            continue
        taken += 1
        assert sound(text), text
        assert read_client(encode(frame)) == frame, text
        if ops := getattr(frame, "ops", None):
            _apply(ops, text)
    assert taken > 500
    assert refused > 5_000


def _apply(ops: list[Any], text: bytes) -> None:
    """A step that can be read is taken whole, or refused and leaves nothing."""
    room = Room("e")
    try:
        admit_step(ops)
        room.take(ops)
    except BadInput:
        assert (room.seq, room.state.cells, room.state.bytes) == (0, 0, 0), text
