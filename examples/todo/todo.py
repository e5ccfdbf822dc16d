"""A to-do list written for Room Service, on rooms of Onceward.

    cd examples/todo
    onceward serve --app todo:app

Then open http://127.0.0.1:8080/todo in two browsers. In `todo.js` only the import has changed. Room
Service needs an endpoint of the site that authorizes users for rooms; here it is `auth`.
"""

from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any

import onceward
from onceward.web import Request, Response, Route, Site, insist_local, parse

FOLDER = Path(__file__).parent
KINDS = {".html": b"text/html", ".css": b"text/css", ".js": b"text/javascript"}
POLICY = (
    b"content-security-policy",
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'",
)

app = onceward.App("sqlite:///todo.db")


def user_of(request: Request) -> str:
    """The user of the page. A real site takes the user from its session."""
    try:
        cookie = SimpleCookie(request.header(b"cookie") or "").get("user")
    except CookieError:
        cookie = None
    return cookie.value if cookie else ""


def may_enter(user: str, room: Any) -> bool:
    """Whether a user may use a room. A real site looks that up in its database."""
    return bool(user) and room == "todo"


async def page(site: None, request: Request) -> Response:
    user = user_of(request) or f"guest-{app.store.ids.new()[-5:].lower()}"
    cookie = f"user={user}; Path=/todo; HttpOnly; SameSite=Strict"
    headers = [POLICY, (b"set-cookie", cookie.encode())]
    return Response(200, (FOLDER / "todo.html").read_bytes(), KINDS[".html"], headers)


async def file(site: None, request: Request) -> Response:
    path = FOLDER / request.route.rpartition("/")[2]
    return Response(200, path.read_bytes(), KINDS[path.suffix])


async def auth(site: None, request: Request) -> Response:
    """Authorize a user for rooms: return the id of each requested resource, and a token.

    This example is for dev mode, where a token is `dev:` and a name. In production, sign one for
    these rooms with `onceward.tokens.sign`, as in docs/roomservice.md.
    """
    insist_local(request)
    user = user_of(request)
    if not user:
        return Response(401)
    asked = parse(await request.body(), dict[str, list[dict[str, Any]]])
    resources = [{**one, "id": one.get("reference")} for one in asked.get("resources", [])]
    rooms = [one["id"] for one in resources if one.get("object") == "room"]
    if not all(may_enter(user, room) for room in rooms):
        return Response(403)
    return Response.of({"token": f"dev:{user}", "user": user, "resources": resources})


app.mount(
    "/todo",
    Site(
        [
            Route("GET", "", page, "A to-do list"),
            Route("GET", "/todo.js", file, "Script"),
            Route("GET", "/todo.css", file, "Style sheet"),
            Route("POST", "/auth", auth, "Authorize a user"),
        ]
    ),
)
