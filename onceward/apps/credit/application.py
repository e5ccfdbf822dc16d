"""The record of an application: what came first, what came after it, and each pull with its why."""

from typing import Any, Literal

import msgspec

from onceward.apps.credit.soap import Notification
from onceward.keys import Key, join

KEPT_MAX = 20
"""So many differences and notifications are told of; of more, only how many there were."""

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


class Difference(msgspec.Struct):
    """What was said of an application after the first time: kept, and not acted on."""

    came_ms: int
    notification: str
    fields: dict[str, str | None]


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

    def note(self, came: Notification, now_ms: int) -> Repeat:
        """Take note of one more notification; says why it came. Only for `again` and `fresher`
        is there anything new to be kept."""
        if came.id in self.notifications:
            return "redelivered"
        self.again += 1
        if len(self.notifications) < KEPT_MAX:
            self.notifications.append(came.id)
        names = self.fields.keys() | came.fields.keys()
        changed = {
            name: came.fields.get(name)
            for name in sorted(names)
            if came.fields.get(name) != self.fields.get(name)
        }
        if not changed:
            return "again"
        if len(self.differences) < KEPT_MAX:
            self.differences.append(Difference(now_ms, came.id, changed))
        return "fresher"

    @property
    def latest(self) -> dict[str, str | None]:
        """The fields as they came last, as far as that was kept."""
        return {**self.fields, **(self.differences[-1].fields if self.differences else {})}

    def pull_of(self, job: str) -> Pull:
        """The pull that a job is for."""
        return next(pull for pull in self.pulls if pull.job == job)


def key_of(organisation: str, opportunity: str) -> Key:
    """Where an application is kept."""
    return "credit", join(organisation, opportunity)


def body_of(organisation: str, came: Notification) -> dict[str, Any]:
    """What the job of a first pull needs to know."""
    return {
        "organisation": organisation,
        "opportunity": came.opportunity,
        "fields": came.fields,
    }
