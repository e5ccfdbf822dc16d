"""Encoding of many commits as arguments of one SQL call, and decoding of its results.

`sql/0002_commit_batch.sql` defines how the server applies them, and `sql/0003_commit_lane.sql` how
the result of a lost response is recovered.
"""

import hashlib
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Final

from onceward.engine.base import ABSENT, ANY, Check, Put, Version, Write
from onceward.errors import BadInput, Conflict
from onceward.keys import Key, shown_key

NEVER: Final = 2**63 - 1
"""The expiry of records that do not expire."""
_NO_VERSION: Final = -2
_FIRST, _CLAIM, _CLAIMED = 1, 2, 4
_CHECK, _PUT, _DELETE = 0, 1, 2

# An index entry of PostgreSQL has at most 2,704 bytes, and a sort key up to 1,024.
_PARTITION_BYTES_MAX: Final = 1_500
_PARTITION_BYTES_KEPT: Final = 1_450


class Member:
    """One commit in progress: its writes as rows for the server, and the future of its caller."""

    __slots__ = ("done", "losses", "now_ms", "rows", "size_bytes", "visible", "writes")

    def __init__(
        self,
        writes: Sequence[Write],
        now_ms: int,
        size_bytes: int,
        visible: Callable[[Version], None] | None,
        done: Any,
    ) -> None:
        """Raises `BadInput` for values that PostgreSQL cannot store, which would fail the whole
        batch.
        """
        admit_time(now_ms)
        # A check without an expectation has no effect, and would only claim its key.
        self.writes = [w for w in writes if type(w) is not Check or w.expect is not ANY]
        self.now_ms = now_ms
        self.size_bytes = size_bytes
        self.visible = visible
        self.done = done
        self.losses = 0
        self.rows = [_row(write) for write in self.writes]


Row = tuple[str, str, str, int, int, int]
"""(partition, sort key, value or "", expiry, expectation, kind)"""


def _row(write: Write) -> Row:
    partition, sort = write.key
    if len(partition) > _PARTITION_BYTES_MAX // 4:
        partition = stored_partition(partition)
    expect = write.expect
    if expect is ANY:
        version = -1
    elif expect is ABSENT:
        version = 0
    elif type(expect) is int and 0 < expect < NEVER:
        version = expect
    else:
        version = _NO_VERSION
    if type(write) is Put:
        expires_at_ms = write.expires_at_ms
        if expires_at_ms is None:
            expires_at_ms = NEVER
        else:
            admit_time(expires_at_ms)
        return partition, sort, _text(write), expires_at_ms, version, _PUT
    return partition, sort, "", NEVER, version, _CHECK if type(write) is Check else _DELETE


def admit_time(time_ms: int) -> None:
    if not -NEVER < time_ms < NEVER:
        raise BadInput(f"{time_ms} is not a time in milliseconds since 1970; use a number from 0")


def _text(put: Put) -> str:
    try:
        text = put.value.decode()
    except UnicodeDecodeError:
        raise BadInput(
            f"the value of {put.key} is not UTF-8; encode it as JSON", code="bad_value"
        ) from None
    if "\0" in text:
        raise BadInput(
            f"the value of {put.key} is not JSON: it contains NUL; remove it", code="bad_value"
        )
    return text


def stored_partition(partition: str) -> str:
    """The name of a partition in the table.

    A name that is too long for an index is replaced by its beginning and a hash. Such a name is
    longer than every name that is stored unchanged.
    """
    encoded = partition.encode()
    if len(encoded) <= _PARTITION_BYTES_MAX:
        return partition
    beginning = encoded[:_PARTITION_BYTES_KEPT].decode(errors="ignore")
    return f"{beginning}#{hashlib.sha256(encoded).hexdigest()}"


CALL: Final = """
SELECT base, failed FROM {schema}.commit_lane(
    $1, $2, $3, $4,
    string_to_array($6, $5), string_to_array($7, $5), string_to_array($8, $5),
    $9::text::bigint[], $10::text::bigint[], $11::text::int[], $12::text::int[],
    $13::text::int[], $14::text::bigint[],
    $15::text::int[], $16::text::int[], $17::text::int[]
)
"""
"""The call: its first arguments are the lane and the number of the batch.

Arrays are passed as text. The driver inspects each element of an array several times, which costs
more than all other work of a node for a commit. Before the first array of a connection it also
queries the server for types, which takes longer than connecting.
"""


def joined(*lists: list[str]) -> tuple[str, list[str]]:
    """Join each list to one text, with a separator that occurs in none of the items."""
    separator = "\x1e"
    texts = [separator.join(texts) for texts in lists]
    tries = 0
    # A separator does not overlap with itself, so two adjacent items cannot form one. A surplus
    # separator is therefore inside an item.
    while any(
        text.count(separator) != max(len(list_) - 1, 0)
        for text, list_ in zip(texts, lists, strict=True)
    ):
        tries += 1
        separator = f"\x1e{tries}\x1f"
        texts = [separator.join(texts) for texts in lists]
    return separator, texts


def _roles(rows: Sequence[Row]) -> tuple[list[int], list[int], int]:
    """For each write the index of the first write of its key, and its role; and the number of
    claimed keys.

    A key is claimed if one of its writes expects no version. The claim is the first put among
    those, so that the inserted row is usually the final one.
    """
    firsts: list[int] = []
    roles: list[int] = []
    claimed = first = claim = 0
    claim_is_put = False
    before: Key | None = None
    for index, row in enumerate(rows, 1):
        if row[:2] == before:
            roles.append(0)
        else:
            before = row[:2]
            first, claim, claim_is_put = index, 0, False
            roles.append(_FIRST)
        firsts.append(first)
        if claim_is_put or row[4] not in (-1, 0):
            continue
        claim_is_put = row[5] == _PUT
        if claim == 0:
            claimed += 1
            roles[first - 1] |= _CLAIMED
        elif claim_is_put:
            roles[claim - 1] &= ~_CLAIM
        else:
            continue
        roles[index - 1] |= _CLAIM
        claim = index
    return firsts, roles, claimed


def _array(numbers: list[int]) -> str:
    return f"{{{str(numbers)[1:-1]}}}"


class Batch:
    """Members in order of arrival, with the arguments of the call that commits them."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = members
        # Sorted by key, then by arrival. The tuples are unique up to the member number, since no
        # member has two writes of one key.
        self._order = order = sorted(
            [
                (row[0], row[1], number, row)
                for number, member in enumerate(members, 1)
                for row in member.rows
            ]
        )
        rows = [entry[3] for entry in order]
        firsts, roles, claimed = _roles(rows)
        tangled = len(set(firsts)) < len(firsts)
        turns: list[list[int]] = [[] for _ in members]
        if tangled:
            for index, entry in enumerate(order, 1):
                turns[entry[2] - 1].append(index)
        separator, texts = joined(
            [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]
        )
        self.arguments: list[Any] = [
            claimed,
            tangled,
            separator,
            *texts,
            _array([row[3] for row in rows]),
            _array([row[4] for row in rows]),
            _array([row[5] for row in rows]),
            _array([entry[2] for entry in order]),
            _array(roles),
            _array([member.now_ms for member in members]),
            _array(firsts if tangled else []),
            _array([index for turn in turns for index in turn]),
            _array(list(accumulate(map(len, turns))) if tangled else []),
        ]

    def verdicts(self, base: int, failed: str) -> list[int | Conflict]:
        """For each member its version, or its conflict."""
        verdicts: list[int | Conflict] = list(range(base + 1, base + 1 + len(self.members)))
        lost: dict[int, set[tuple[str, str]]] = {}
        for index in failed.split(",") if failed else ():
            partition, sort, number, _ = self._order[int(index) - 1]
            lost.setdefault(number, set()).add((partition, sort))
        for number, keys in lost.items():
            member = self.members[number - 1]
            named = [
                write.key
                for write, row in zip(member.writes, member.rows, strict=True)
                if (row[0], row[1]) in keys
            ]
            text = ", ".join("/".join(shown_key(key)) for key in named)
            verdicts[number - 1] = Conflict(
                f"changed by another transaction: {text}; read again and retry", keys=named
            )
        return verdicts
