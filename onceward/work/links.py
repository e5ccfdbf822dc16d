"""Creation of links for events, with the server keys of an application."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from onceward.errors import AlreadyEnded
from onceward.maintenance.key_source import KeySource
from onceward.node import Node
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.work.event_links import PREFIX, EventLink, admit_link, sealed


class LinkSigner(Protocol):
    """The application of a link."""

    store: Store
    node: Node
    key_source: KeySource


class Link(NamedTuple):
    """A link and its end."""

    url: str
    until_ms: int


async def new_link(
    app: LinkSigner,
    id_: str,
    event: str,
    value: Any,
    choices: Mapping[str, Any] | None,
    text: str,
    expires_s: float,
    base_url: str,
) -> Link:
    """Create a link; see `App.event_link`."""
    admitted, lasts_ms = admit_link(event, value, choices, text, expires_s, base_url)

    async def until_ms(tx: Transaction) -> int:
        job = await app.node.schedule.get(tx, id_)
        if job.stage in ("succeeded", "cancelled"):
            raise AlreadyEnded(
                f"job {id_} cannot receive the event {event!r}: it is {job.state}; send it to "
                "another job",
                id=id_,
                state=job.state,
            )
        return tx.ends_ms + lasts_ms

    ends_ms = await app.store.run(until_ms)
    await app.key_source.unlock()
    link = EventLink(app.store.ids.token(16), id_, event, text, admitted, ends_ms)
    token = sealed(app.store.server_keys, link)
    return Link(f"{base_url.rstrip('/')}{PREFIX}/{token}", ends_ms)
