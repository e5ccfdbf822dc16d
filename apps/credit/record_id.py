"""Ids of Salesforce records: the same record has one of 15 and one of 18 characters.

The short form tells upper from lower case. The long one appends three characters that say which
of the fifteen are upper case, so that it stays unique where case is lost on the way.
"""

import re

from apps.credit.errors import BAD_ENVELOPE
from onceward import BadInput

_SHORT = 15
_FORM = re.compile(r"[A-Za-z0-9]{15}(?:[A-Z0-5]{3})?")
_SUMS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ012345"


def long_id(id_: str) -> str:
    """The id of 18 characters. Raises `BadInput` for what is no id, or one that was damaged."""
    if not _FORM.fullmatch(id_):
        raise BadInput(f"{id_[:40]!a} is not the id of a Salesforce record", code=BAD_ENVELOPE)
    short = id_[:_SHORT]
    long = short + "".join(_sum(short[start : start + 5]) for start in range(0, _SHORT, 5))
    if id_ not in (short, long):
        raise BadInput(f"the id {id_!a} is damaged: it should be {long}", code=BAD_ENVELOPE)
    return long


def _sum(five: str) -> str:
    return _SUMS[sum(1 << place for place, char in enumerate(five) if char.isupper())]
