"""Fractional positions of list items: strings that sort like the items.

A position is a path of integers, so there is always one between two others: the next number at some
depth, or one level deeper. Repeated insertions at one place (the start, the end, or between the
same two items) count up or down, and the text grows with the logarithm of their number. Insertions
that make it grow faster, each between the last two, eventually cause the list to renumber its
items.

A number is a letter for its sign and number of digits, followed by the digits: `a0` to `az` are 0
to 61, `b00` follows; `Zz` is -1, `Z0` -62, and `Yzz` precedes that. No number is a prefix of
another, so strings compare like paths in any language that compares by code. Numbers have at most
eight digits, which every language represents exactly.
"""

from onceward import limits
from onceward.errors import BadInput

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_VALUES = {digit: value for value, digit in enumerate(_DIGITS)}
_BASE = len(_DIGITS)
_COUNT = sum(_BASE**digits for digits in range(1, 9))
"""The count of numbers from 0 up, and of those below 0."""


def between(low: str | None, high: str | None) -> str | None:
    """A position after `low` and before `high`, where None is an end of the list.

    None if it would be too long or out of range: the list must then be renumbered.
    """
    path = _between(low, high)
    text = _text(path)
    countable = all(-_COUNT <= number < _COUNT for number in path)
    return text if countable and len(text) <= limits.POSITION_CHARS_MAX else None


def _between(low: str | None, high: str | None) -> list[int]:
    if low is None:
        return [0] if high is None else [_path(high)[0] - 1]
    if high is None:
        return [_path(low)[0] + 1]
    if low >= high:
        raise ValueError(f"there is no position between {low!r} and {high!r}")
    under, over = _path(low), _path(high)
    same = 0
    while same < len(under) and under[same] == over[same]:
        same += 1
    if same == len(under):  # `high` is below `low` in the tree
        return [*under, over[same] - 1]
    if under[same] + 1 < over[same]:
        return [*under[:same], under[same] + 1]
    rest = under[same + 1 :]
    return [*under[: same + 1], rest[0] + 1 if rest else 0]


def nth(number: int) -> str:
    """The position of an item in a renumbered list: 0, 1, 2 …"""
    return _text([number])


def admit(position: str) -> None:
    """Raise `BadInput` for an invalid or too long position."""
    if type(position) is str and len(position) <= limits.POSITION_CHARS_MAX:
        try:
            _path(position)
            return
        except (KeyError, ValueError):
            pass
    raise BadInput(
        f"{str(position)[:100]!a} is not a position in a list; use that of an item",
        code="bad_value",
    )


def _path(text: str) -> list[int]:
    path: list[int] = []
    place = 0
    while place < len(text) or not path:
        head = text[place : place + 1]
        if "a" <= head <= "h":
            digits, below = ord(head) - ord("a") + 1, False
        elif "S" <= head <= "Z":
            digits, below = ord("Z") - ord(head) + 1, True
        else:
            raise ValueError(f"{text!r} is not a position")
        place += 1 + digits
        if place > len(text):
            raise ValueError(f"{text!r} is not a position")
        value = 0
        for digit in text[place - digits : place]:
            value = value * _BASE + _VALUES[digit]
        # Shorter numbers come before longer ones, and negative ones count from the other side.
        shorter = (_BASE**digits - _BASE) // (_BASE - 1)
        path.append(value - _BASE**digits - shorter if below else shorter + value)
    return path


def _text(path: list[int]) -> str:
    return "".join([_number(value) for value in path])


def _number(value: int) -> str:
    left = value if value >= 0 else -1 - value
    digits = 1
    while left >= _BASE**digits:
        left -= _BASE**digits
        digits += 1
    if value < 0:
        left = _BASE**digits - 1 - left
    text = ""
    for _ in range(digits):
        left, digit = divmod(left, _BASE)
        text = _DIGITS[digit] + text
    return chr(ord("a") + digits - 1 if value >= 0 else ord("Z") - digits + 1) + text
