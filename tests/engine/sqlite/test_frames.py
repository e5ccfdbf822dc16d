"""Headers and frames as bytes, and what is read from bytes of any kind."""

import pytest

from onceward.engine.sqlite.frames import encode_frame, read_frame
from onceward.errors import CannotOpen


def test_a_frame_that_verifies_but_is_not_understood_is_damage() -> None:
    frame = encode_frame(b"saltsalt", 1, 1, b"\x93\x01\x02\x03")
    with pytest.raises(CannotOpen, match="not understood"):
        read_frame(memoryview(frame), 0, b"saltsalt", "app.db-log.1")
