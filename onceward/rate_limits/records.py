"""Records of rate limits: the struct, its key, and validation."""

from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec

from onceward import keys, limits
from onceward.errors import BadInput
from onceward.keys import Key
from onceward.quantities import is_whole

MICRO: Final = 1_000_000
"""Tokens are stored in millionths: whole numbers, which many small refills do not make inexact."""
TOKENS_MAX: Final = limits.KEY_NUMBER_MAX // MICRO
_PARTITIONS: Final = 64


class Bucket(msgspec.Struct, frozen=True):
    """The tokens of a key after the last time that some were taken."""

    microtokens: int
    at_ms: int


class Limit(NamedTuple):
    """A rate limit, in millionths of tokens."""

    rate: int
    """Per second."""
    burst: int


def bucket_key(key: str) -> Key:
    return f"bucket#{crc32(key.encode()) % _PARTITIONS:02d}", keys.join(key)


def admit_key(key: Any) -> None:
    """Raise `bad_key` for anything but text of 1 to 256 bytes."""
    keys.admit_text(key, "the key of a rate limit")
    size_bytes = len(key.encode())
    if not 0 < size_bytes <= limits.ORDER_KEY_BYTES_MAX:
        raise BadInput(
            f"the key of a rate limit must have 1 to {limits.ORDER_KEY_BYTES_MAX} bytes, "
            f"not {size_bytes}; use a hash of a longer one",
            code="bad_key",
        )


def limit_of(rate: Any, burst: Any) -> Limit:
    """A rate limit as it was given. Raises `BadInput`."""
    number = isinstance(rate, int | float) and type(rate) is not bool
    if not number or not 1 / MICRO <= rate <= TOKENS_MAX:
        raise BadInput(
            f"rate must be {1 / MICRO:f} to {TOKENS_MAX} tokens per second, not {str(rate)[:100]}"
        )
    if not is_whole(burst) or not 0 < burst <= TOKENS_MAX:
        raise BadInput(f"burst must be 1 to {TOKENS_MAX} tokens, not {str(burst)[:100]}")
    if burst / rate > limits.DELAY_S_MAX:
        raise BadInput(
            f"a bucket of {burst} tokens takes more than 100 years to fill at {rate} tokens per "
            "second; choose a higher rate or a smaller burst"
        )
    return Limit(round(rate * MICRO), burst * MICRO)


def admit_tokens(tokens: Any, burst: int) -> None:
    """Raise `BadInput` for a number of tokens that no bucket of this size can ever have."""
    if not is_whole(tokens) or tokens < 0:
        raise BadInput(f"tokens must be 0 or a positive whole number, not {str(tokens)[:100]}")
    if tokens > burst:
        raise BadInput(
            f"{str(tokens)[:100]} tokens are never available: the bucket holds {burst}; take fewer "
            "or raise burst"
        )
