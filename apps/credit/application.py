"""The record of an application: what came first, what came after it, and each pull with its why."""

from typing import Any, Literal

import msgspec

from apps.credit.soap import Notification
from onceward import NoSuchJob, keys, limits

KEPT_MAX = 20
"""So many notifications are told of, the first, and so many differences, the last; of more, only
how many there were."""
DIFFERENCE_BYTES_MAX = 4_000
DIFFERENCES_BYTES_MAX = 40_000
"""So much is kept of one difference, and of all. With the first fields, which are stored in no
more than twice the bytes of a notification, that leaves room for pulls in the record."""
PULL_BYTES_MAX = 16_000
"""More than the longest pull takes."""
_MORE = "…"
"""In place of the names of further fields."""

Repeat = Literal["first", "redelivered", "again", "fresher"]
"""Why a notification came: as the first one; once more, since its acknowledgement was not heard
in time; as a new one about the same, since the sender's own rule fired again; or with other
fields."""


class Pull(msgspec.Struct, omit_defaults=True):
    """One pull: the first one, or one that somebody has asked for."""

    job: str
    asked_ms: int
    by: str = ""
    reason: str = ""
    report: str = ""
    """The bureau's number of it, once there is one."""
    outcome: str = ""
    reasons: list[str] = []
    status: str = ""
    """What was last reported of it while it has no outcome: `failed` or `in_doubt`."""
    why: str = ""
    """The reason that was reported."""


class Difference(msgspec.Struct, omit_defaults=True):
    """What was said of an application after the first time: kept, and not acted on."""

    came_ms: int
    notification: str
    fields: dict[str, str | None]
    """Those that are not as they came first."""
    omitted: list[str] = []
    """The names of further ones, whose texts are too long to be kept here."""


class Application(msgspec.Struct, omit_defaults=True):
    """All that is known of an application."""

    opportunity: str
    organisation: str
    fields: dict[str, str | None]
    """As they came first."""
    pulls: list[Pull]
    notifications: list[str]
    again: int = 0
    """How many further notifications there were about it."""
    differences: list[Difference] = []
    unheard: str = ""
    """`late` or `closed`, if an acknowledgement of it cannot have been heard in time."""

    def note(self, came: Notification, now_ms: int) -> Repeat:
        """Take note of one more notification; says why it came. Only for `again` and `fresher`
        is there anything new to be kept. The record stays small enough to be stored."""
        if came.id in self.notifications:
            return "redelivered"
        self.again += 1
        if len(self.notifications) < KEPT_MAX:
            self.notifications.append(came.id)
        # As those that came last: what is said again after something else is news.
        if not (self._last and self._last.omitted) and not _changed(self.latest, came.fields):
            return "again"
        self.differences.append(_difference(now_ms, came.id, _changed(self.fields, came.fields)))
        while len(self.differences) > KEPT_MAX or _size(self.differences) > DIFFERENCES_BYTES_MAX:
            del self.differences[0]
        return "fresher"

    @property
    def latest(self) -> dict[str, str | None]:
        """The fields as they came last, as far as that was kept."""
        return {**self.fields, **(self._last.fields if self._last else {})}

    @property
    def _last(self) -> Difference | None:
        return self.differences[-1] if self.differences else None

    def has_room(self) -> bool:
        """Whether one more pull fits into the record, whatever comes of it."""
        return _size(self) + PULL_BYTES_MAX <= limits.VALUE_BYTES_MAX

    def pull_of(self, job: str) -> Pull:
        """The pull that a job is for. Raises `NoSuchJob`."""
        for pull in self.pulls:
            if pull.job == job:
                return pull
        raise NoSuchJob(f"application {self.opportunity} has no pull with the job {job}")


def _changed(known: dict[str, str | None], came: dict[str, str | None]) -> dict[str, str | None]:
    """The fields that are others now; one that is missing is as one that is nil."""
    names = sorted(known.keys() | came.keys())
    return {name: came.get(name) for name in names if came.get(name) != known.get(name)}


def _difference(came_ms: int, notification: str, changed: dict[str, str | None]) -> Difference:
    """As many of the changed fields as there is room for, the shortest first; of the others
    names, as far as there is room for those."""
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
    """Bytes, as it is stored."""
    return len(msgspec.json.encode(value))


def key_of(organisation: str, opportunity: str) -> keys.Key:
    """Where an application is kept."""
    return "credit", keys.join(organisation, opportunity)


def body_of(organisation: str, came: Notification) -> dict[str, Any]:
    """What the job of a first pull needs to know."""
    return {
        "organisation": organisation,
        "opportunity": came.opportunity,
        "fields": came.fields,
    }
