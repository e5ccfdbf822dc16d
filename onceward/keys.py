"""Key encoding: tuples of words and numbers as text with the same sort order.

A record's key is a partition and a sort key, both made by `join`. Words are joined by `#`.
Characters up to `$` are escaped as `$` and two hex digits, so that the separator sorts before all
content, and a word before its own extensions. Numbers are sixteen decimal digits. Encoded keys,
compared as bytes or code points, sort like the tuples. Keys and values are readable text:
`sqlite3 app.db 'select * from record'` shows them.

The first word of the partition is the kind of a record. Each capability declares its kinds in its
module `register` (see `onceward.parts`); the reference has a table of all of them.

A name (of a queue, lock, room, table, endpoint, timer or caller) may belong to a namespace. Then
the namespace is the first component of the name itself, before a separator that no name contains
(`qualified`); kind and slot stay in front of it. The default namespace adds nothing.
"""

import re
from typing import Any

from onceward.errors import BadInput
from onceward.limits import KEY_NUMBER_MAX

__all__ = ["Key", "after", "below", "join", "number", "split"]  # for applications

Key = tuple[str, str]
"""(partition, sort key)"""

USER = "u#"
"""The prefix of the partitions of applications. No internal partition starts with it."""

_ESCAPES = {code: f"${code:02x}" for code in range(0x25)}
_PLAIN = re.compile("[%-\ud7ff\ue000-\U0010ffff]*").fullmatch  # needs no escaping
_NAME = re.compile("[^\x00-\x1f\x7f\ud800-\udfff]+").fullmatch
_NAMESPACE_END = "\x1f"  # a control character, which no name contains


def join(*parts: str | int) -> str:
    """Encode a tuple of words and numbers. Raises `BadInput` for invalid parts."""
    if not parts:
        raise BadInput(
            f"a key needs at least one part, as in keys.join('order', 7), but {parts!r} has none",
            code="bad_key",
        )
    return "#".join(
        [part if type(part) is str and _PLAIN(part) else _encode(part) for part in parts]
    )


def split(text: str) -> tuple[str, ...]:
    """Decode the result of `join`. Numbers are returned as sixteen digits: convert them with
    `int()`."""
    return tuple(_decode(part) for part in text.split("#"))


def kind_of(partition: str) -> str:
    """The kind of the records in a partition: its first word."""
    return partition.partition("#")[0]


def user_key(key: Key) -> Key:
    """The stored form of an application's key."""
    return USER + key[0], key[1]


def shown_key(key: Key) -> Key:
    """A stored key in the form that applications use."""
    return key[0].removeprefix(USER), key[1]


def number(value: int) -> str:
    """A number as a part of a key: sixteen digits, so that it sorts as text."""
    if not 0 <= value <= KEY_NUMBER_MAX:
        raise BadInput(
            f"a number in a key must be 0 to {KEY_NUMBER_MAX}, not {value}", code="bad_key"
        )
    return f"{value:016d}"


def qualified(namespace: str, name: str) -> str:
    """A name in a namespace, as one word of a key. In the default namespace: the name itself."""
    return f"{namespace}{_NAMESPACE_END}{name}" if namespace else name


def unqualified(text: str) -> tuple[str, str]:
    """The namespace and the name of a `qualified` word."""
    namespace, end, name = text.rpartition(_NAMESPACE_END)
    return (namespace, name) if end else ("", text)


def admit_name(name: Any, what: str, bytes_max: int) -> None:
    """Raise `BadInput` unless `name` is text of 1 to `bytes_max` bytes without control characters.
    Errors use `what`, such as "a caller's name"."""
    if type(name) is not str:
        raise BadInput(f"{what} must be text, not {type(name).__name__}", code="bad_name")
    if name and _NAME(name) is None:
        raise BadInput(
            f"{what} has control characters or lone surrogates: {name[:100]!a}; remove them",
            code="bad_name",
        )
    size_bytes = len(name) if name.isascii() else len(name.encode())
    if not 0 < size_bytes <= bytes_max:
        raise BadInput(
            f"{what} must have 1 to {bytes_max} bytes, not {size_bytes}", code="bad_name"
        )


def admit_text(text: Any, what: str) -> None:
    """Raise `BadInput` for values that cannot be part of a key."""
    if not isinstance(text, str):
        raise BadInput(f"{what} must be text, not {type(text).__name__}", code="bad_key")
    _encode(text)


def below(*parts: str | int) -> tuple[str, str]:
    """The range [start, end) of all keys that extend this tuple by further parts."""
    prefix = join(*parts)
    return prefix + "#", prefix + "$"


def after(sort: str) -> str:
    """The bound directly after a sort key or partition, to continue a scan. No key is in between,
    since engines reject keys that contain NUL. Valid for all keys, including those not made by
    `join`."""
    return sort + "\x01"


def _encode(part: str | int) -> str:
    if type(part) is int:
        return number(part)
    if not isinstance(part, str):
        raise BadInput(
            f"a key must consist of text and whole numbers, not {type(part).__name__}",
            code="bad_key",
        )
    if any("\ud800" <= char <= "\udfff" for char in part):
        raise BadInput(
            f"the key {part[:100]!a} is not valid Unicode; remove lone surrogates", code="bad_key"
        )
    return part.translate(_ESCAPES)


def _decode(part: str) -> str:
    if "$" not in part:
        return part
    head, *rest = part.split("$")
    try:
        return head + "".join(chr(int(piece[:2], 16)) + piece[2:] for piece in rest)
    except ValueError:
        raise BadInput(
            f"{part!r} is not an encoded key; encode it with keys.join", code="bad_key"
        ) from None
