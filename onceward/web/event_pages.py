"""The pages behind links that send an event: a question with buttons, and the outcome.

Programs that scan mails open links, so only the form decides. The link itself is the credential:
its address is not sent to other sites, and pages cannot be framed.
"""

import logging
from datetime import UTC, datetime
from html import escape
from typing import Any

from onceward.errors import OncewardError
from onceward.web.http import Request, Response
from onceward.web.pages import GUARDED
from onceward.web.routes import Route
from onceward.web.site import Site
from onceward.work.event_links import PREFIX, EventLink, LinkUse, opened, state_of_link, use_link

logger = logging.getLogger("onceward.http")

_HEADERS = [
    (name, value.replace(b"form-action 'none'", b"form-action 'self'")) for name, value in GUARDED
]
_HEADERS.append((b"x-robots-tag", b"noindex"))
_QUIET = ' class="quiet"'
_NOT_VALID = ("This link is not valid", "Open the whole link from the message that you received.")
_CLOSED = {
    "expired": (410, "This link has expired", "Ask the sender of the message for another one."),
    "ended": (410, "No answer is needed any more", "The work that asked for it has ended."),
    "unknown": (404, *_NOT_VALID),
}


async def _ask(_: Any, request: Request) -> Response:
    server = request.scope["onceward"]
    link = opened(server.app.store.server_keys, request.parameters["token"])
    if link is None:
        return _page(404, *_NOT_VALID)
    schedule = server.app.node.schedule
    state, use = await server.app.store.run(lambda tx: state_of_link(tx, schedule, link))
    return _question(link) if state == "open" else _closed(link, state, use)


async def _decide(_: Any, request: Request) -> Response:
    server = request.scope["onceward"]
    link = opened(server.app.store.server_keys, request.parameters["token"])
    if link is None:
        return _page(404, *_NOT_VALID)
    text = (await request.form()).get("choice")
    if text not in map(str, range(len(link.choices))):
        return _page(400, "This answer is not one of the choices", "Open the link again.")
    choice, schedule = int(text), server.app.node.schedule
    state, use = await server.app.store.run(lambda tx: use_link(tx, schedule, link, choice))
    if state == "open" or (use is not None and use.choice == choice):
        return _page(200, "Thank you", f"Your answer was recorded: {link.choices[choice][0]}.")
    return _closed(link, state, use)


def _guarded(handle: Any) -> Any:
    """Show errors as pages, since people read them."""

    async def guarded(owner: Any, request: Request) -> Response:
        try:
            found: Response = await handle(owner, request)
        except OncewardError as error:
            if error.kind.status >= 500:
                logger.error("%s %s: %s", request.method, request.route, error)
            malformed = error.kind.status in (400, 413, 415, 422)
            note = "Open the link again." if malformed else "Try again later."
            return _page(error.kind.status, "The answer was not recorded", note)
        return found

    return guarded


def _closed(link: EventLink, state: str, use: LinkUse | None) -> Response:
    if use is None:
        return _page(*_CLOSED[state])
    label = link.choices[use.choice][0]
    return _page(410, "This link was already used", f"The recorded answer is: {label}.")


def _question(link: EventLink) -> Response:
    until = datetime.fromtimestamp(link.until_ms / 1000, UTC)
    buttons = "".join(
        f'<button{_QUIET if at else ""} name="choice" value="{at}">{escape(label)}</button>'
        for at, (label, _) in enumerate(link.choices)
    )
    note = f"This link works once, until {until:%Y-%m-%d %H:%M} UTC."
    title = link.text or f"Confirm: {link.event}"
    return _page(200, title, note, f'<form method="post" class="choices">{buttons}</form>')


def _page(status: int, title: str, note: str, form: str = "") -> Response:
    html = f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<link rel="icon" href="../console/mark.svg">
<link rel="stylesheet" href="../console/colours.css">
<link rel="stylesheet" href="../console/plain.css">
<main class="card">
<h1>{escape(title)}</h1>
{form}
<p class="faint">{escape(note)}</p>
</main>
</html>
"""
    return Response(status, html.encode(), b"text/html; charset=utf-8", _HEADERS)


MOUNTED = {
    PREFIX: Site(
        [
            Route("GET", "/{token}", _guarded(_ask), "Ask for the answer of a link", public=True),
            Route("POST", "/{token}", _guarded(_decide), "Send the event of a link", public=True),
        ]
    )
}
"""The path of the pages."""
