"""Headers and frames as bytes, and what is read from bytes of any kind."""

import struct
import zlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.engine.base import Record
from onceward.engine.sqlite.frames import (
    BLOCK_BYTES,
    FRAME_HEAD_BYTES,
    Commits,
    Frame,
    Segment,
    encode_commits,
    encode_frame,
    encode_header,
    padded,
    parse_segment,
    read_frame,
)
from onceward.errors import CannotOpen

ID, SALT, PATH = bytes(range(16)), b"saltsalt", "app.db-log.00000007"
COMMITS: list[Commits] = [
    [[Record(("p", "a"), b"1", 1)], [Record(("p", "a"), b"", 2), Record(("q", "b"), b"2", 2)]],
    [[Record(("p", "c"), b"3" * 600, 3, 99)]],
    [[Record(("p", "d"), b"4", 4)]],
]


def frame_of(first_seq: int, commits: Commits, salt: bytes = SALT) -> bytes:
    frame = encode_frame(salt, first_seq, len(commits), encode_commits(commits))
    return frame.ljust(padded(len(frame)), b"\0")


def header_for(content: bytes) -> bytes:
    return encode_header(7, ID, SALT, BLOCK_BYTES + len(content))


HEADER = header_for(b"")
FRAMES = [frame_of(1, COMMITS[0]), frame_of(3, COMMITS[1]), frame_of(4, COMMITS[2])]
ENDS = [BLOCK_BYTES, 2 * BLOCK_BYTES, 4 * BLOCK_BYTES, 5 * BLOCK_BYTES]


def parse(*parts: bytes) -> tuple[Segment, list[Frame]]:
    """Parse a segment; `HEADER` stands for that of a segment with this content."""
    first, rest = parts[0], b"".join(parts[1:])
    return parse_segment(PATH, (header_for(rest) if first is HEADER else first) + rest, ID)


def why_refused(*parts: bytes) -> str:
    with pytest.raises(CannotOpen) as refused:
        parse(*parts)
    error = refused.value
    assert error.code == "damaged"
    assert error.details["segment"] == PATH
    assert PATH in error.message
    what = str(error.details["what"])
    assert what in error.message
    return what


def flipped(content: bytes, offset: int, bit: int = 0) -> bytes:
    return content[:offset] + bytes([content[offset] ^ 1 << bit]) + content[offset + 1 :]


def test_a_header_is_written_as_databases_on_disk_have_it() -> None:
    head = b"ONCELOG2" + struct.pack("<Q", 7) + ID + SALT + struct.pack("<Q", 4_096)
    header = (head + struct.pack("<I", zlib.crc32(head))).ljust(512, b"\0")
    assert encode_header(7, ID, SALT, 4_096) == header


@pytest.mark.parametrize("size_bytes", [BLOCK_BYTES + 1, 3 * BLOCK_BYTES - 1, 4 * BLOCK_BYTES])
def test_a_segment_that_is_not_as_long_as_it_was_made_is_damage(size_bytes: int) -> None:
    content = header_for(bytes(2 * BLOCK_BYTES)).ljust(size_bytes, b"\0")
    expected = f"it has {size_bytes} bytes instead of {3 * BLOCK_BYTES}"
    assert why_refused(content) == expected


def test_a_frame_is_written_as_databases_on_disk_have_it() -> None:
    sums = SALT + struct.pack("<IIQI", 5, 0, 9, 2)
    checksum = zlib.crc32(sums + b"hello")
    written = SALT + struct.pack("<IIQI", 5, checksum, 9, 2) + b"hello"
    assert encode_frame(SALT, 9, 2, b"hello") == written
    assert len(written) == FRAME_HEAD_BYTES + 5
    rows = [[[["p", "a"], b"1", 1, None]]]
    assert msgspec.msgpack.decode(encode_commits([[Record(("p", "a"), b"1", 1)]])) == rows


@pytest.mark.parametrize(
    ("size_bytes", "blocks"), [(0, 0), (1, 1), (511, 1), (512, 1), (513, 2), (1_024, 2), (1_025, 3)]
)
def test_what_is_begun_of_a_block_is_taken_whole(size_bytes: int, blocks: int) -> None:
    assert padded(size_bytes) == blocks * 512


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_a_segment_is_read_up_to_where_its_frames_end(count: int) -> None:
    rest = bytes(3 * BLOCK_BYTES)
    segment, frames = parse(HEADER, *FRAMES[:count], rest)
    size_bytes = ENDS[count] + len(rest)
    assert segment == Segment(
        PATH, 7, SALT, size_bytes, fd=-1, end=ENDS[count], last_seq=0, direct=False
    )
    assert [frame.commits for frame in frames] == COMMITS[:count]
    assert [frame.offset for frame in frames] == ENDS[:count]
    assert [(frame.first_seq, frame.last_seq) for frame in frames] == [(1, 2), (3, 3), (4, 4)][
        :count
    ]


def test_a_segment_may_end_with_its_header_or_with_its_last_frame() -> None:
    assert parse(HEADER)[1] == []
    last = encode_frame(SALT, 4, 1, encode_commits(COMMITS[2]))
    segment, frames = parse(HEADER, *FRAMES[:2], last)
    assert [frame.commits for frame in frames] == COMMITS
    assert segment.end == ENDS[3]


keys = st.tuples(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20), st.text("aé😀"))
records = st.builds(
    Record, keys, st.binary(max_size=50), st.integers(1, 2**62), st.none() | st.integers(0, 2**62)
)


@settings(max_examples=30)
@given(st.lists(st.lists(st.lists(records), min_size=1, max_size=3), max_size=4), st.binary())
def test_what_is_written_is_read_again(written: list[Commits], rest: bytes) -> None:
    seqs, content = [1], b""
    for commits in written:
        content += frame_of(seqs[-1], commits)
        seqs.append(seqs[-1] + len(commits))
    segment, frames = parse(HEADER, content, rest)
    assert [frame.commits for frame in frames] == written
    assert [frame.first_seq for frame in frames] == seqs[:-1]
    assert [frame.last_seq + 1 for frame in frames] == seqs[1:]
    assert segment.end == BLOCK_BYTES + len(content)


@pytest.mark.parametrize("size_bytes", [0, 43, BLOCK_BYTES - 1])
def test_a_header_that_is_cut_off_is_damage(size_bytes: int) -> None:
    assert why_refused(HEADER[:size_bytes]) == "its header is truncated"


def test_a_header_with_a_flipped_bit_is_damage() -> None:
    for offset in range(52):
        assert why_refused(flipped(HEADER, offset)) == "its header does not verify"


def test_a_header_of_another_format_is_damage_even_if_it_verifies() -> None:
    head = b"ONCELOG3" + HEADER[8:48]
    later = (head + struct.pack("<I", zlib.crc32(head))).ljust(BLOCK_BYTES, b"\0")
    assert why_refused(later) == "its header does not verify"


def test_a_segment_of_another_database_is_damage() -> None:
    header = encode_header(7, bytes(16), SALT, BLOCK_BYTES)
    assert why_refused(header) == "it belongs to another database"


def test_frames_of_an_earlier_use_are_none() -> None:
    old = [frame_of(1, commits, b"tlastlas") for commits in COMMITS]
    assert parse(HEADER, *old)[1] == []
    segment, frames = parse(HEADER, FRAMES[0], *old[1:])
    assert [frame.commits for frame in frames] == COMMITS[:1]
    assert segment.end == ENDS[1]


FRAME_BYTES = FRAME_HEAD_BYTES + len(encode_commits(COMMITS[2]))


def test_every_flipped_bit_of_a_frame_is_damage() -> None:
    for offset in range(FRAME_BYTES):
        for bit in range(8):
            harmed = flipped(FRAMES[2], offset, bit)
            said = why_refused(HEADER, *FRAMES[:2], harmed)
            assert said == f"one bit of the frame at byte {ENDS[2]} is wrong"
            said = why_refused(HEADER, *FRAMES[:2], harmed, FRAMES[0])
            assert said == f"the frame at byte {ENDS[2]} is corrupt, and valid frames follow"


def test_a_frame_that_lacks_a_sector_with_a_single_bit_is_torn() -> None:
    value = b"x" * (
        2 * BLOCK_BYTES - FRAME_HEAD_BYTES - len(encode_commits([[Record(("p", "c"), b"", 3, 0)]]))
    )
    for length in range(len(value) - 8, len(value) + 8):
        frame = encode_frame(
            SALT, 3, 1, encode_commits([[Record(("p", "c"), b"x" * length, 3, 64)]])
        )
        if len(frame) % BLOCK_BYTES == 1:
            break
    torn = frame[:-1] + b"\0"
    assert len(parse(HEADER, FRAMES[0], torn.ljust(padded(len(torn)), b"\0"))[1]) == 1


def test_a_torn_frame_whose_checksum_is_one_bit_off_by_chance_is_torn() -> None:
    records = [Record(("p", f"{n:04d}"), b'"value"', 3) for n in range(60)]
    whole = frame_of(3, [records])
    # Its second sector is what an earlier use of the segment has left there: frames.
    torn = bytearray(whole)
    torn[BLOCK_BYTES : 2 * BLOCK_BYTES] = frame_of(1, COMMITS[1], b"old salt")[:BLOCK_BYTES]
    payload_bytes = len(encode_commits([records]))

    def error(content: bytes) -> int:
        payload = slice(FRAME_HEAD_BYTES, FRAME_HEAD_BYTES + payload_bytes)
        return zlib.crc32(whole[payload]) ^ zlib.crc32(content[payload])

    # Choose 32 bits of it such that another single bit would put the checksum right.
    wanted = error(torn) ^ error(flipped(whole, 2 * BLOCK_BYTES + 9))
    base: dict[int, tuple[int, int]] = {}
    for bit in range(32):
        change, chosen = error(flipped(whole, BLOCK_BYTES + 40 + bit // 8, bit % 8)), 1 << bit
        while change and change.bit_length() in base:
            other = base[change.bit_length()]
            change, chosen = change ^ other[0], chosen ^ other[1]
        base[change.bit_length()] = change, chosen
    bits = 0
    while wanted:
        change, chosen = base[wanted.bit_length()]
        wanted, bits = wanted ^ change, bits ^ chosen
    for byte in range(4):
        torn[BLOCK_BYTES + 40 + byte] ^= bits >> 8 * byte & 0xFF
    assert error(torn) == error(flipped(whole, 2 * BLOCK_BYTES + 9))
    assert len(parse(HEADER, *FRAMES[:1], bytes(torn))[1]) == 1


def test_a_frame_with_two_flipped_bits_is_the_torn_end_unless_another_follows() -> None:
    said = f"the frame at byte {ENDS[2]} is corrupt, and valid frames follow"
    for offset in range(FRAME_BYTES - 1):
        torn = flipped(flipped(FRAMES[2], offset, offset % 8), offset + 1, 3)
        segment, frames = parse(HEADER, *FRAMES[:2], torn)
        assert [frame.commits for frame in frames] == COMMITS[:2]
        assert segment.end == ENDS[2]
        assert why_refused(HEADER, *FRAMES[:2], torn, FRAMES[0]) == said


@pytest.mark.parametrize("rest", [b"", bytes(BLOCK_BYTES)])
def test_a_frame_that_is_cut_off_anywhere_is_the_torn_end(rest: bytes) -> None:
    for size_bytes in range(FRAME_BYTES):
        segment, frames = parse(HEADER, *FRAMES[:2], FRAMES[2][:size_bytes], rest)
        assert [frame.commits for frame in frames] == COMMITS[:2]
        assert segment.end == ENDS[2]


@pytest.mark.parametrize("gap_bytes", [1, 2, 511, 512, 513, 5_000])
def test_a_valid_frame_anywhere_behind_the_end_is_damage(gap_bytes: int) -> None:
    assert "valid frames follow" in why_refused(HEADER, FRAMES[0], bytes(gap_bytes), FRAMES[1])


def test_a_salt_in_what_is_torn_off_is_not_yet_a_frame() -> None:
    value = b"x" + SALT * 3 + b"x" * 50 + SALT
    torn = flipped(flipped(frame_of(3, [[Record(("p", "c"), value, 3)]]), 20), 40)
    assert len(parse(HEADER, FRAMES[0], torn)[1]) == 1
    assert "valid frames follow" in why_refused(HEADER, FRAMES[0], torn, FRAMES[1])


def test_a_frame_is_found_behind_what_looks_like_its_beginning() -> None:
    salt = b"ssssssss"
    frame = frame_of(1, COMMITS[0], salt)
    for rest, damaged in ((b"\0\0" + salt, False), (b"\0\0s" + frame, True)):
        header = encode_header(7, ID, salt, BLOCK_BYTES + len(frame) + len(rest))
        if damaged:
            assert "valid frames follow" in why_refused(header, frame, rest)
        else:
            assert len(parse(header, frame, rest)[1]) == 1


@pytest.mark.parametrize("payload", [b"\x93\x01\x02\x03", b"\xc1", b""])
def test_a_frame_that_verifies_but_is_not_understood_is_damage(payload: bytes) -> None:
    frame = encode_frame(SALT, 1, 1, payload)
    with pytest.raises(CannotOpen, match="cannot be decoded"):
        read_frame(memoryview(frame), 0, SALT, PATH)
    assert why_refused(HEADER, frame).startswith(f"the frame at byte {BLOCK_BYTES} cannot ")
