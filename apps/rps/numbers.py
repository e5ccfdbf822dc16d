"""Phone numbers in E.164 form: a plus, a country code, and up to fifteen digits in total."""

import re

from onceward import BadInput

_E164 = re.compile(r"\+[1-9][0-9]{6,14}")
# Separators between digits: spaces of all kinds, hyphens, dots, slashes and brackets.
_BETWEEN = re.compile(r"[\s().\-/\u2010-\u2015]+")


def normalise(text: str, country: str) -> str:
    """The canonical form of a number. Raises `BadInput` for an invalid number, such as a short
    code.

    `country` is the calling code for numbers without one, such as 49; if empty, all need one.
    """
    number = _BETWEEN.sub("", text)
    if number.startswith("00"):
        number = f"+{number[2:]}"
    elif country and not number.startswith("+"):
        number = f"+{country}{number.removeprefix('0')}"
    if not _E164.fullmatch(number):
        raise BadInput(
            f"{text[:40]!a} is not a phone number such as +12025550101", code="wrong_type"
        )
    return number
