"""The format of the journal: segment headers and frames with checksums.

A segment starts with a header block. Frames follow, each on a 512-byte boundary, so that writing
one never touches a sector of another. A frame is one group commit: a header (salt, payload size,
checksum, first sequence number, number of commits) and a msgpack list of commits, each a list of
its rows. A segment gets a new salt each time it is used, so frames of an earlier use are invalid.

A frame that fails verification is the torn end of the journal, unless a valid frame follows or only
a single bit of it is wrong. In these cases the journal is damaged and opening fails.
"""

import struct
import zlib
from dataclasses import dataclass

import msgspec

from onceward.engine.base import Record
from onceward.errors import CannotOpen

BLOCK_BYTES = 512
_MAGIC = b"ONCELOG2"
_HEADER = struct.Struct("<8sQ16s8sQI")  # magic, number, database id, salt, file size, checksum
_FRAME = struct.Struct("<8sIIQI")  # salt, payload bytes, checksum, first seq, commits
FRAME_HEAD_BYTES = _FRAME.size
_CRC_POLYNOMIAL = 0xEDB88320
# Limits the search to about a second; larger torn frames are not examined.
_BITS_TRIED_MAX = 1 << 24

Commits = list[list[Record]]
encode_commits = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Commits)


@dataclass(slots=True)
class Segment:
    """One file of the journal that is being filled or waits to be folded."""

    path: str
    number: int
    salt: bytes
    size_bytes: int
    fd: int = -1
    end: int = BLOCK_BYTES
    last_seq: int = 0
    direct: bool = False
    """Whether writes bypass the system's cache, which makes synced writes faster."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One group commit read from disk."""

    first_seq: int
    commits: Commits
    offset: int
    """Its position in the segment."""

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.commits) - 1


def parse_segment(path: str, content: bytes, database_id: bytes) -> tuple[Segment, list[Frame]]:
    """Parse a segment and its frames; raises `CannotOpen` if it is damaged or of another
    database."""
    if len(content) < BLOCK_BYTES:
        raise damaged(path, "its header is truncated")
    magic, number, owner_id, salt, size_bytes, checksum = _HEADER.unpack_from(content)
    if magic != _MAGIC or checksum != zlib.crc32(content[: _HEADER.size - 4]):
        raise damaged(path, "its header does not verify")
    if owner_id != database_id:
        raise damaged(path, "it belongs to another database")
    if len(content) != size_bytes:
        raise damaged(path, f"it has {len(content)} bytes instead of {size_bytes}")
    segment = Segment(path, number, salt, size_bytes)
    frames = []
    view = memoryview(content)
    while (frame := read_frame(view, segment.end, salt, path)) is not None:
        frames.append(frame[0])
        segment.end = frame[1]
    following = content.find(salt, segment.end)
    while following >= 0:
        if read_frame(view, following, salt, path) is not None:
            raise damaged(
                path, f"the frame at byte {segment.end} is corrupt, and valid frames follow"
            )
        following = content.find(salt, following + 1)
    if _is_one_bit_off(content, segment.end, salt):
        raise damaged(path, f"one bit of the frame at byte {segment.end} is wrong")
    return segment, frames


def read_frame(view: memoryview, offset: int, salt: bytes, path: str) -> tuple[Frame, int] | None:
    """The frame at an offset and the offset of the next one; None if there is no valid frame."""
    start = offset + _FRAME.size
    if start > len(view):
        return None
    found, payload_bytes, checksum, first_seq, count = _FRAME.unpack_from(view, offset)
    payload = view[start : start + payload_bytes]
    if found != salt or len(payload) != payload_bytes:
        return None
    if checksum != _checksum(salt, first_seq, count, payload):
        return None
    try:
        commits = _decoder.decode(payload)
    except msgspec.DecodeError as error:
        raise damaged(path, f"the frame at byte {offset} cannot be decoded: {error}") from error
    return Frame(first_seq, commits, offset), offset + padded(_FRAME.size + payload_bytes)


def _is_one_bit_off(content: bytes, offset: int, salt: bytes) -> bool:
    """Whether flipping one bit makes the frame valid: then it was written completely and damaged
    later.

    The torn end of the journal lacks whole sectors instead.
    """
    start = offset + _FRAME.size
    head = bytearray(content[offset:start])
    if len(head) < _FRAME.size or _bits_apart(bytes(head[:8]), salt) > 1:
        return False
    view = memoryview(content)
    for bit in range(len(head) * 8):
        head[bit // 8] ^= 1 << bit % 8
        if _frame_error(bytes(head), view[start:], salt) == 0:
            return True
        head[bit // 8] ^= 1 << bit % 8
    error = _frame_error(bytes(head), view[start:], salt)
    payload_bytes = _FRAME.unpack(head)[1]
    # The change of the checksum when a bit of the payload is flipped, from the last bit on.
    delta, left = _CRC_POLYNOMIAL, 0 if error is None else min(payload_bytes * 8, _BITS_TRIED_MAX)
    for bit in range(left):
        if delta == error:
            at = start + payload_bytes - 1 - bit // 8
            sector = at // BLOCK_BYTES * BLOCK_BYTES
            payload = bytearray(view[start : start + payload_bytes])
            payload[at - start] ^= 0x80 >> bit % 8
            return any(view[sector : sector + BLOCK_BYTES]) and _is_understood(payload)
        delta = delta >> 1 ^ (_CRC_POLYNOMIAL if delta & 1 else 0)
    return False


def _is_understood(payload: bytearray) -> bool:
    """Whether a payload decodes to commits with valid text.

    The checksum has only 32 bits: among a few hundred large torn frames, one is a single bit away
    from a matching checksum by chance.
    """
    try:
        for commit in _decoder.decode(payload):
            for record in commit:
                record.value.decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _frame_error(head: bytes, rest: memoryview, salt: bytes) -> int | None:
    """The difference between the actual and the stored checksum; None if it is not a frame."""
    found, payload_bytes, checksum, first_seq, count = _FRAME.unpack(head)
    if found != salt or payload_bytes > len(rest):
        return None
    return int(checksum) ^ _checksum(salt, first_seq, count, rest[:payload_bytes])


def _bits_apart(one: bytes, other: bytes) -> int:
    return (int.from_bytes(one) ^ int.from_bytes(other)).bit_count()


def encode_header(number: int, database_id: bytes, salt: bytes, size_bytes: int) -> bytes:
    head = _HEADER.pack(_MAGIC, number, database_id, salt, size_bytes, 0)[:-4]
    return (head + struct.pack("<I", zlib.crc32(head))).ljust(BLOCK_BYTES, b"\x00")


def encode_frame(salt: bytes, first_seq: int, count: int, payload: bytes) -> bytes:
    checksum = _checksum(salt, first_seq, count, payload)
    return _FRAME.pack(salt, len(payload), checksum, first_seq, count) + payload


def _checksum(salt: bytes, first_seq: int, count: int, payload: bytes | memoryview) -> int:
    return zlib.crc32(payload, zlib.crc32(_FRAME.pack(salt, len(payload), 0, first_seq, count)))


def padded(size_bytes: int) -> int:
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES


def damaged(path: str, what: str) -> CannotOpen:
    return CannotOpen(
        f"the journal segment {path} is damaged: {what}. Nothing was changed. "
        "Run `onceward db check`, or restore a backup.",
        code="damaged",
        segment=path,
        what=what,
    )
