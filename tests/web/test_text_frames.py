"""Texts that come whole are read as the library reads them, and all else is left to it."""

from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from websockets.frames import Opcode
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from onceward.web.text_frames import Texts

MOST = 70_000
HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def framed(first: int, message: bytes, mask: bytes | None, width: int | None = None) -> bytes:
    """A frame; the width of its size is as small as may be, unless it is given."""
    size = len(message)
    if width is None:
        width = 0 if size < 126 else 2 if size < 1 << 16 else 8
    second = {0: size, 2: 126, 8: 127}[width]
    head = bytes([first, second | (0x80 if mask is not None else 0)])
    if width:
        head += size.to_bytes(width)
    if mask is None:
        return head + message
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(message))


MASKS = st.binary(min_size=4, max_size=4)
MESSAGES = st.binary(max_size=10) | st.sampled_from(
    [b"x" * size for size in (124, 125, 126, 127, 65_535, 65_536, MOST, MOST + 1)]
)
TEXTS = st.builds(framed, st.just(0x81), MESSAGES, MASKS)
FRAMES = st.one_of(
    TEXTS,
    TEXTS,
    st.builds(framed, st.just(0x8A), st.just(b""), MASKS),
    st.builds(framed, st.sampled_from([0x01, 0x00, 0x80, 0x82, 0x89, 0x8A]), MESSAGES, MASKS),
    st.builds(framed, st.integers(0, 255), st.binary(max_size=5), st.none() | MASKS),
    st.builds(framed, st.just(0x81), st.binary(max_size=5), MASKS, st.sampled_from([2, 8])),
)


class Heard(NamedTuple):
    events: list[Any]
    said: bytes
    open: bool


def hear(pieces: list[bytes], *, whole_texts: bool) -> Heard:
    """What is heard of pieces of data, by the library alone or after texts were taken out."""
    library = ServerProtocol(max_size=MOST)
    library.receive_data(HANDSHAKE)
    [request] = library.events_received()
    library.send_response(library.accept(request))  # type: ignore[arg-type]
    library.data_to_send()
    texts, in_fragments = Texts(), False
    events: list[Any] = []
    said = b""
    for piece in pieces:
        rest = piece
        if whole_texts and (in_fragments or library.state is not OPEN):
            texts.follow(piece)
        elif whole_texts:
            whole, frames, rest = texts.take(piece)
            events += [(Opcode.TEXT, True, text) for text in whole]
            assert frames >= len(whole)
            assert piece.endswith(rest)
        if rest:
            library.receive_data(rest)
        for event in library.events_received():
            opcode, fin, data = event.opcode, event.fin, bytes(event.data)  # type: ignore[union-attr]
            if opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                in_fragments = not fin
            if opcode is not Opcode.PONG:
                events.append((opcode, fin, data))
        said += b"".join(library.data_to_send())
    return Heard(events, said, library.state is OPEN)


@given(st.lists(FRAMES, max_size=6), st.lists(st.integers(0, 400), max_size=8), st.integers(0, 9))
@example([framed(0x81, b"x" * 130, b"mask")], [1, 2, 3, 4, 5, 6, 7, 8, 9, 100], 0)
@example([framed(0x01, b"a", b"mask"), framed(0x81, b"b", b"mask")], [], 0)
@example([framed(0x01, b"a", b"mask"), framed(0x81, b"b", b"mask")], [7], 0)
def test_what_is_heard_is_the_same_however_it_comes(
    frames: list[bytes], cuts: list[int], missing: int
) -> None:
    data = b"".join(frames)
    data = data[: len(data) - missing]
    pieces, at = [], 0
    for cut in cuts:
        pieces.append(data[at : at + cut])
        at += cut
    pieces = [piece for piece in (*pieces, data[at:]) if piece]
    assert hear(pieces, whole_texts=True) == hear(pieces, whole_texts=False)


SMALL = MESSAGES.filter(lambda message: len(message) < 1 << 16)


@given(st.lists(SMALL, min_size=1, max_size=6), MASKS)
def test_whole_texts_need_no_library(messages: list[bytes], mask: bytes) -> None:
    data = b"".join(framed(0x81, message, mask) for message in messages)
    assert Texts().take(data) == (messages, len(messages), b"")


def test_empty_pongs_are_counted_and_need_no_library() -> None:
    data = framed(0x8A, b"", b"mask") + framed(0x81, b"one", b"mask")
    assert Texts().take(data * 2) == ([b"one", b"one"], 4, b"")


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535])
def test_a_text_is_taken_when_all_of_it_is_there(size: int) -> None:
    message = bytes(at % 251 for at in range(size))
    frame = framed(0x81, message, b"mask")
    assert Texts().take(frame) == ([message], 1, b"")
    assert Texts().take(frame + b"\x81") == ([message], 1, b"\x81")
    assert Texts().take(frame[:-1]) == ([], 0, frame[:-1])


# What the library has to judge, or to answer.
LEFT = {
    "larger than most": framed(0x81, b"x" * 65_536, b"mask"),
    "a small size in two bytes": framed(0x81, b"x" * 125, b"mask", 2),
    "a small size in eight bytes": framed(0x81, b"x" * 126, b"mask", 8),
    "no mask": framed(0x81, b"x" * 9, None),
    "no mask, and nothing else": framed(0x81, b"", None),
    "no mask, and larger": framed(0x81, b"x" * 126, None),
    "the first of fragments": framed(0x01, b"x", b"mask"),
    "the last of fragments": framed(0x80, b"x", b"mask"),
    "bytes": framed(0x82, b"x", b"mask"),
    "many bytes": framed(0x82, b"x" * 300, b"mask"),
    "a goodbye": framed(0x88, b"", b"mask"),
    "a ping": framed(0x89, b"", b"mask"),
    "a pong to somebody": framed(0x8A, b"x", b"mask"),
    "a bit that means nothing": framed(0xC1, b"x", b"mask"),
}
NEXT = framed(0x81, b"next", b"mask")


@pytest.mark.parametrize("frame", LEFT.values(), ids=LEFT)
def test_all_else_is_left_to_the_library_with_what_follows(frame: bytes) -> None:
    assert Texts().take(NEXT + frame + NEXT) == ([b"next"], 1, frame + NEXT)


@pytest.mark.parametrize("frame", LEFT.values(), ids=LEFT)
def test_wherever_a_frame_is_cut_the_next_text_is_taken(frame: bytes) -> None:
    for cut in {*range(1, 15), len(frame) // 2, len(frame) - 1} & {*range(1, len(frame))}:
        texts = Texts()
        for rest in (frame[:cut], frame[cut:]):
            assert texts.take(rest) == ([], 0, rest)
        assert texts.take(NEXT) == ([b"next"], 1, b"")
        texts.follow(frame + frame[:cut])
        texts.follow(frame[cut:] + frame)
        assert texts.take(NEXT) == ([b"next"], 1, b"")


@pytest.mark.parametrize(
    ("frame", "cut"),
    [
        (framed(0x82, NEXT * 2, b"\x00" * 4), 6),
        (framed(0x82, NEXT * 20, b"\x00" * 4), 8),
        # Its second byte and what follows are like the beginning of a text without anything in it.
        (framed(0x82, b"x", b"\x80abc"), 1),
    ],
)
def test_what_looks_like_a_text_within_a_frame_is_none(frame: bytes, cut: int) -> None:
    texts = Texts()
    assert texts.take(frame[:cut]) == ([], 0, frame[:cut])
    assert texts.take(frame[cut:]) == ([], 0, frame[cut:])
    assert texts.take(NEXT) == ([b"next"], 1, b"")


@pytest.mark.parametrize("piece", [1, 2, 5, 9])
def test_the_library_has_a_frame_to_its_end_and_not_what_follows(piece: int) -> None:
    texts = Texts()
    begun = framed(0x81, b"in several pieces", b"mask")
    for at in range(0, len(begun), piece):
        assert texts.take(begun[at : at + piece]) == ([], 0, begun[at : at + piece])
    assert texts.take(framed(0x81, b"next", b"mask")) == ([b"next"], 1, b"")
