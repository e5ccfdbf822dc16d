"""Frames, as they are made for all readers at once."""

from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from onceward.rooms.wire import frame, messages


@given(st.lists(st.one_of(st.binary(max_size=300), st.integers(65_000, 66_000).map(bytes))))
def test_frames_are_those_of_the_library_and_can_be_taken_apart(all_: list[bytes]) -> None:
    frames = [frame(message) for message in all_]
    assert frames == [Frame(Opcode.TEXT, message).serialize(mask=False) for message in all_]
    assert list(messages(b"".join(frames))) == all_
