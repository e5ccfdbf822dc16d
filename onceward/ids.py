"""Random IDs: the only module that uses randomness.

An id is 26 characters of Crockford's base 32: 48 bits of milliseconds, then 80 random
bits. Ids sort by the time they were made, and those of one `Ids` sort strictly in the
order they were made, also within a millisecond or when the clock goes back.
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
"""The machine's own randomness; whatever can be simulated takes it as an argument."""


class Pool:
    """The machine's own randomness, drawn in larger pieces: quicker where little is wanted often.
    For one thread. What was drawn before a fork is not used by the child."""

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
    """Makes ids and random numbers from a clock and a source of bytes, both injectable."""

    def __init__(
        self, now_ms: Callable[[], int], randbytes: Callable[[int], bytes] | None = None
    ) -> None:
        self._now_ms = now_ms
        self._randbytes = randbytes or Pool()
        self._last = 0
        self._time = (0, _encode(0, 50))

    def new(self, now_ms: int | None = None) -> str:
        """A new id, larger than all before it from here. Who has just read the clock can give
        the time."""
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
        # As `_encode` of the lowest 80 bits: written out, since every message needs one.
        high, low = value >> 40 & 0xFF_FFFF_FFFF, value & 0xFF_FFFF_FFFF
        return (
            f"{self._time[1]}"
            f"{_PAIRS[high >> 30]}{_PAIRS[high >> 20 & 1023]}"
            f"{_PAIRS[high >> 10 & 1023]}{_PAIRS[high & 1023]}"
            f"{_PAIRS[low >> 30]}{_PAIRS[low >> 20 & 1023]}"
            f"{_PAIRS[low >> 10 & 1023]}{_PAIRS[low & 1023]}"
        )

    def uuid(self) -> str:
        """A new UUID of version 7 (RFC 9562): it sorts by the millisecond in which it was made."""
        value = (self._now_ms() << 80) | int.from_bytes(self._randbytes(10))
        value = value & ~(0xF << 76) | 7 << 76  # the version
        value = value & ~(0b11 << 62) | 0b10 << 62  # the variant
        text = f"{value:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def fraction(self) -> float:
        """A random number in [0, 1), for jitter."""
        # 53 bits: what a float holds exactly; more would round up to 1.
        return (int.from_bytes(self._randbytes(7)) >> 3) / (1 << 53)

    def token(self, size_bytes: int = 32) -> str:
        """A secret of that many random bytes, as hex."""
        return self._randbytes(size_bytes).hex()


def _encode(value: int, bits: int) -> str:
    """The lowest bits of a number, two characters for ten."""
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in range(bits - 10, -1, -10)])


def created_ms(id_: str) -> int:
    """When an id was made, in ms since the epoch; raises `BadInput` if it is none."""
    if len(id_) != LENGTH or any(char not in _ALPHABET for char in id_):
        raise BadInput(f"{id_!r} is not an id", code="bad_key")
    value = 0
    for char in id_:
        value = value * 32 + _ALPHABET.index(char)
    return value >> 80
