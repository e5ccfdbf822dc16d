"""Links that send an event once: for people who click them in a mail, without credentials.

A link contains the job, the event and the values to choose from, signed with a server key for this
purpose only. The commit that sends the event also records that the link was used.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any

import msgspec

from onceward import limits
from onceward.errors import BadInput, NoSuchJob, TooLarge
from onceward.json_values import encode
from onceward.keys import Key
from onceward.quantities import milliseconds
from onceward.schedule import Schedule
from onceward.server_key import ServerKeys
from onceward.store.transaction import Transaction
from onceward.work import events

PREFIX = "/event-links"
_PURPOSE = "event link"


class EventLink(msgspec.Struct, frozen=True, array_like=True):
    """The contents of a link."""

    id: str
    job: str
    event: str
    text: str
    """What the page asks."""
    choices: tuple[tuple[str, Any], ...]
    """The labels of the buttons, and the values that they send."""
    until_ms: int


class LinkUse(msgspec.Struct, frozen=True):
    """The record of a link that was used."""

    used_ms: int
    choice: int
    """The position of the button."""


def link_key(id_: str) -> Key:
    return "eventlink", id_


def admit_link(
    event: Any, value: Any, choices: Any, text: Any, expires_s: Any, base_url: Any
) -> tuple[tuple[tuple[str, Any], ...], int]:
    """The choices and the lifetime in ms of a link. Raises `BadInput`."""
    events.admit_event(event)
    if choices is None:
        choices = {"Confirm": value}
    elif value is not None:
        raise BadInput("a link has a value or choices, not both; omit one of them")
    if not isinstance(choices, Mapping) or not 0 < len(choices) <= limits.LINK_CHOICES_MAX:
        raise BadInput(
            f"the choices of a link must be 1 to {limits.LINK_CHOICES_MAX} labels with "
            f"their values, such as {{'Approve': true}}, not {str(choices)[:100]}"
        )
    for label in choices:
        _admit_text("the label of a choice", label, 1, limits.LINK_LABEL_CHARS_MAX)
    _admit_text("the text of a link", text, 0, limits.LINK_TEXT_CHARS_MAX)
    _admit_text("base_url", base_url, 0, limits.LINK_TEXT_CHARS_MAX)
    if base_url and not base_url.startswith(("https://", "http://")):
        raise BadInput(
            "base_url must be the address of the server for browsers, such as "
            f"https://jobs.example.com, not {base_url[:100]!r}"
        )
    lasts_ms = milliseconds(expires_s, "expires_s", limits.EVENT_LINK_S_MAX)
    if not lasts_ms:
        raise BadInput(f"expires_s must be more than 0, not {expires_s}")
    return tuple(choices.items()), lasts_ms


def _admit_text(what: str, text: Any, least: int, most: int) -> None:
    if not isinstance(text, str) or not least <= len(text) <= most or not text.isprintable():
        raise BadInput(
            f"{what} must be {least} to {most} printable characters, not {str(text)[:100]!a}"
        )


def sealed(server_keys: ServerKeys, link: EventLink) -> str:
    """A link as signed text. Raises `TooLarge` and `BadInput`."""
    text = urlsafe_b64encode(encode(link, ("event", "link"))).decode().rstrip("=")
    token = f"{text}.{server_keys.sign(_PURPOSE, text)}"
    if len(token) > limits.EVENT_LINK_CHARS_MAX:
        raise TooLarge(
            f"the link has {len(token)} characters; at most {limits.EVENT_LINK_CHARS_MAX} work in "
            "all mail programs. Use shorter values, such as names",
            code="value_too_large",
        )
    return token


def opened(server_keys: ServerKeys, token: str) -> EventLink | None:
    """The link in a signed text; None if the signature is not valid."""
    text, _, mark = token.partition(".")
    if len(token) > limits.EVENT_LINK_CHARS_MAX or not mark:
        return None
    if not server_keys.verify(_PURPOSE, text, mark):
        return None
    try:
        return msgspec.json.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=EventLink)
    except (ValueError, msgspec.DecodeError):
        return None


async def state_of_link(
    tx: Transaction, schedule: Schedule, link: EventLink
) -> tuple[str, LinkUse | None]:
    """open, used, expired, ended (the job takes no events) or unknown (there is no such job)."""
    if link.until_ms <= tx.now_ms:
        return "expired", None
    use = await tx.get(link_key(link.id), LinkUse)
    if use is not None:
        return "used", use
    try:
        job = await schedule.get(tx, link.job)
    except NoSuchJob:
        return "unknown", None
    return ("ended" if job.stage in ("succeeded", "cancelled") else "open"), None


async def use_link(
    tx: Transaction, schedule: Schedule, link: EventLink, choice: int
) -> tuple[str, LinkUse | None]:
    """Send the event of a link, unless it is not open; returns the state before. Raises the errors
    of `events.emit`."""
    state, use = await state_of_link(tx, schedule, link)
    if state == "open":
        await events.emit(tx, schedule, link.job, link.event, link.choices[choice][1])
        used = LinkUse(tx.now_ms, choice)
        tx.put(link_key(link.id), used, expires_at_ms=link.until_ms)
    return state, use
