"""Ids of Salesforce records, which have a form of 15 and one of 18 characters.

The short form is case-sensitive. The long form appends three characters that encode which of the
fifteen are upper case, so that it stays unique if case is lost.
"""

import re

from apps.credit.errors import BAD_ENVELOPE
from onceward import BadInput

_SHORT = 15
_FORM = re.compile(r"[A-Za-z0-9]{15}(?:[A-Z0-5]{3})?")
_SUMS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ012345"


def long_id(id_: str) -> str:
    """Return the id of 18 characters. Raises `BadInput` for an invalid or damaged id."""
    if not _FORM.fullmatch(id_):
        raise BadInput(f"{id_[:40]!a} is not the id of a Salesforce record", code=BAD_ENVELOPE)
    short = id_[:_SHORT]
    long = short + "".join(_sum(short[start : start + 5]) for start in range(0, _SHORT, 5))
    if id_ not in (short, long):
        raise BadInput(f"the id {id_!a} is damaged; expected {long}", code=BAD_ENVELOPE)
    return long


def _sum(five: str) -> str:
    return _SUMS[sum(1 << place for place, char in enumerate(five) if char.isupper())]
