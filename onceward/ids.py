"""Random IDs: the only module that uses randomness.

An id is 26 characters of Crockford's base 32: 48 bits of milliseconds, then 80 random bits. Ids
sort by their time of creation. Those of one `Ids` object sort strictly in their order of creation,
even within a millisecond or after the clock has gone back.
"""

import os
import secrets
from collections.abc import Callable
from weakref import WeakSet

from onceward.errors import BadInput

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
LENGTH = 26

random_bytes: Callable[[int], bytes] = secrets.token_bytes
"""The system's random source. Code that can be simulated takes the source as an argument."""


class Pool:
    """The system's random source, read in larger blocks, which is faster for many small requests.
    For one thread. A forked child does not use bytes that its parent has read."""

    def __init__(self) -> None:
        self._drawn = b""
        self._used = 0
        _pools.add(self)

    def __call__(self, count: int) -> bytes:
        if self._used + count > len(self._drawn):
            self._drawn, self._used = random_bytes(max(count, _POOL_BYTES)), 0
        start = self._used
        self._used += count
        return self._drawn[start : self._used]

    def forget(self) -> None:
        self._drawn, self._used = b"", 0


def _forked() -> None:
    for pool in _pools:
        pool.forget()


_POOL_BYTES = 1_024
_pools: WeakSet[Pool] = WeakSet()
os.register_at_fork(after_in_child=_forked)


class Ids:
    """Generates ids and random numbers from a clock and a source of bytes, both injectable."""

    def __init__(
        self, now_ms: Callable[[], int], randbytes: Callable[[int], bytes] | None = None
    ) -> None:
        self._now_ms = now_ms
        self._randbytes = randbytes or Pool()
        self._last = 0
        self._time = (0, _encode(0, 50))

    def new(self, now_ms: int | None = None) -> str:
        """A new id, larger than all earlier ids of this object. Callers that have just read the
        clock can pass the time."""
        if now_ms is None:
            now_ms = self._now_ms()
        if now_ms > self._last >> 80:
            value = (now_ms << 80) | int.from_bytes(self._randbytes(10))
        else:
            # Same millisecond, or the clock went back: count up from the last one, by
            # a random step so that the next id cannot be guessed from this one.
            value = self._last + 1 + int.from_bytes(self._randbytes(4))
        self._last = value
        time_ms = value >> 80
        if time_ms != self._time[0]:
            self._time = (time_ms, _encode(time_ms, 50))
        # Equals `_encode` of the lowest 80 bits; inlined, since every message needs an id.
        high, low = value >> 40 & 0xFF_FFFF_FFFF, value & 0xFF_FFFF_FFFF
        return (
            f"{self._time[1]}"
            f"{_PAIRS[high >> 30]}{_PAIRS[high >> 20 & 1023]}"
            f"{_PAIRS[high >> 10 & 1023]}{_PAIRS[high & 1023]}"
            f"{_PAIRS[low >> 30]}{_PAIRS[low >> 20 & 1023]}"
            f"{_PAIRS[low >> 10 & 1023]}{_PAIRS[low & 1023]}"
        )

    def uuid(self) -> str:
        """A new UUID of version 7 (RFC 9562), which sorts by its millisecond of creation."""
        value = (self._now_ms() << 80) | int.from_bytes(self._randbytes(10))
        value = value & ~(0xF << 76) | 7 << 76  # the version
        value = value & ~(0b11 << 62) | 0b10 << 62  # the variant
        text = f"{value:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def fraction(self) -> float:
        """A random number in [0, 1), for jitter."""
        # 53 bits fit into a float exactly; more could round up to 1.
        return (int.from_bytes(self._randbytes(7)) >> 3) / (1 << 53)

    def token(self, size_bytes: int = 32) -> str:
        """A secret of `size_bytes` random bytes, as hex."""
        return self._randbytes(size_bytes).hex()


def _encode(value: int, bits: int) -> str:
    """The lowest bits of a number, two characters for ten bits."""
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in range(bits - 10, -1, -10)])


def created_ms(id_: str) -> int:
    """The creation time of an id, in ms since the epoch; raises `BadInput` for an invalid id."""
    if len(id_) != LENGTH or any(char not in _ALPHABET for char in id_):
        raise BadInput(f"{id_!r} is not an id; use one that `ids.new()` made", code="bad_key")
    value = 0
    for char in id_:
        value = value * 32 + _ALPHABET.index(char)
    return value >> 80
