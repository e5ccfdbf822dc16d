"""The record of an application: first notification, later changes, and each pull with its
reason."""

from typing import Any, Literal

import msgspec

from apps.credit.soap import Notification
from onceward import NoSuchJob, keys, limits

KEPT_MAX = 20
"""The maximum number of stored notifications (the first ones) and differences (the last ones);
beyond that only their counts are kept."""
DIFFERENCE_BYTES_MAX = 4_000
DIFFERENCES_BYTES_MAX = 40_000
"""The maximum size of one difference, and of all. Together with the first fields, stored in at most
twice the bytes of a notification, that leaves room for pulls in the record."""
PULL_BYTES_MAX = 16_000
"""More than the longest pull takes."""
_MORE = "…"
"""A placeholder for the names of further fields."""

Repeat = Literal["first", "redelivered", "again", "fresher"]
"""Why a notification arrived.

`first`: the first one; `redelivered`: repeated after an acknowledgement that was not received;
`again`: a new one with the same fields; `fresher`: one with other fields.
"""


class Pull(msgspec.Struct, omit_defaults=True):
    """One pull: the first one, or one that an operator requested."""

    job: str
    asked_ms: int
    by: str = ""
    reason: str = ""
    report: str = ""
    """The bureau's number of the report, once it exists."""
    outcome: str = ""
    reasons: list[str] = []
    status: str = ""
    """The last reported status while it has no outcome: `failed` or `in_doubt`."""
    why: str = ""
    """The reported reason."""


class Difference(msgspec.Struct, omit_defaults=True):
    """Fields of a later notification: stored, but not acted on."""

    came_ms: int
    notification: str
    fields: dict[str, str | None]
    """The fields that differ from the first ones."""
    omitted: list[str] = []
    """The names of further fields whose texts are too long to be stored."""


class Application(msgspec.Struct, omit_defaults=True):
    """All stored data of an application."""

    opportunity: str
    organisation: str
    fields: dict[str, str | None]
    """The fields of the first notification."""
    pulls: list[Pull]
    notifications: list[str]
    again: int = 0
    """The number of further notifications."""
    differences: list[Difference] = []
    unheard: str = ""
    """`late` or `closed` if the acknowledgement cannot have been received in time."""

    def note(self, came: Notification, now_ms: int) -> Repeat:
        """Record one more notification; returns why it arrived.

        Only `again` and `fresher` change the record. The record stays within the size limit.
        """
        if came.id in self.notifications:
            return "redelivered"
        self.again += 1
        if len(self.notifications) < KEPT_MAX:
            self.notifications.append(came.id)
        # Compared with the latest fields: a return to earlier values is a change.
        if not (self._last and self._last.omitted) and not _changed(self.latest, came.fields):
            return "again"
        self.differences.append(_difference(now_ms, came.id, _changed(self.fields, came.fields)))
        while len(self.differences) > KEPT_MAX or _size(self.differences) > DIFFERENCES_BYTES_MAX:
            del self.differences[0]
        return "fresher"

    @property
    def latest(self) -> dict[str, str | None]:
        """The latest fields, as far as they were stored."""
        return {**self.fields, **(self._last.fields if self._last else {})}

    @property
    def _last(self) -> Difference | None:
        return self.differences[-1] if self.differences else None

    def has_room(self) -> bool:
        """Whether the record has room for one more pull with any outcome."""
        return _size(self) + PULL_BYTES_MAX <= limits.VALUE_BYTES_MAX

    def pull_of(self, job: str) -> Pull:
        """Return the pull of a job. Raises `NoSuchJob`."""
        for pull in self.pulls:
            if pull.job == job:
                return pull
        raise NoSuchJob(f"application {self.opportunity} has no pull with the job {job}")


def _changed(known: dict[str, str | None], came: dict[str, str | None]) -> dict[str, str | None]:
    """The fields that differ now; a missing field equals nil."""
    names = sorted(known.keys() | came.keys())
    return {name: came.get(name) for name in names if came.get(name) != known.get(name)}


def _difference(came_ms: int, notification: str, changed: dict[str, str | None]) -> Difference:
    """The changed fields that fit, the shortest first; of the others the names, as far as they
    fit."""
    difference = Difference(came_ms, notification, {})
    left_bytes = DIFFERENCE_BYTES_MAX - _size(Difference(came_ms, notification, {}, [_MORE]))
    for name, text in sorted(changed.items(), key=_size):
        if (needed_bytes := _size((name, text))) <= left_bytes:
            difference.fields[name] = text
            left_bytes -= needed_bytes
        elif (needed_bytes := _size(name) + 1) <= left_bytes:
            difference.omitted.append(name)
            left_bytes -= needed_bytes
        else:
            difference.omitted.append(_MORE)
            break
    return difference


def _size(value: Any) -> int:
    """The stored size in bytes."""
    return len(msgspec.json.encode(value))


def key_of(organisation: str, opportunity: str) -> keys.Key:
    """The key of an application."""
    return "credit", keys.join(organisation, opportunity)


def body_of(organisation: str, came: Notification) -> dict[str, Any]:
    """The body of the job of a first pull."""
    return {
        "organisation": organisation,
        "opportunity": came.opportunity,
        "fields": came.fields,
    }
