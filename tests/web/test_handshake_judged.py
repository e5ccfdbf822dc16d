"""Who may speak WebSocket, judged by what a request says."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from onceward.callers import Caller
from onceward.errors import BadInput, OncewardError, Unavailable
from onceward.rooms.frames import PROTOCOL
from onceward.web.api import ROUTES
from onceward.web.auth import DEVELOPER, Access, ApiKey, Auth, digest_of
from onceward.web.grants import EVERYTHING, Grants
from onceward.web.handshake import Admission, admit, admit_origin, behind, is_from_node
from onceward.web.http import Request
from onceward.web.routes import Routes

ANN = Access(Caller("key", "", "ann"), EVERYTHING)
BEN = Access(Caller("key", "", "ben"), Grants.of(("read:news",)))
SECRET = "known to nodes"


def server(*, dev: bool = False, origins: frozenset[str] = frozenset()) -> Any:
    """As much of a server as is asked whether it takes a request."""
    scopes = {"ann": ("all",), "ben": ("read:news",)}
    keys = [ApiKey(name, digest_of(f"ow_{name}"), given) for name, given in scopes.items()]
    auth = Auth(dev=True) if dev else Auth(keys)
    owners = SimpleNamespace(is_node=lambda secret: secret == SECRET)
    return SimpleNamespace(
        app=SimpleNamespace(hub=SimpleNamespace(owners=owners)),
        auth=auth,
        caller=lambda request: DEVELOPER,
        draining=asyncio.Event(),
        origins=origins,
        routes=Routes(ROUTES),
        visitor=lambda token: auth.caller(f"Bearer {token}", 0),
    )


def request(
    *, path: str = "/v1/ws", query: bytes = b"", offered: Any = (), **headers: str
) -> Request:
    given = {"host": "here:80", **{name.replace("_", "-"): text for name, text in headers.items()}}
    scope = {
        "method": "GET",
        "path": path,
        "query_string": query,
        "subprotocols": offered,
        "headers": [(name.encode(), text.encode()) for name, text in given.items()],
    }
    return Request(scope)


def refused(what: Any, asked: Any) -> str:
    with pytest.raises(OncewardError) as found:
        admit(what, asked)
    return found.value.code


def test_a_caller_is_known_by_the_header_or_else_by_the_first_token_offered() -> None:
    both = ["token.ow_ben", PROTOCOL, "token.ow_ann"]
    for asked, caller in (
        (request(authorization="Bearer ow_ann"), ANN),
        (request(authorization="Bearer   ow_ann "), ANN),
        (request(authorization="Bearer ow_ann", offered=["token.ow_ben"]), ANN),
        (request(offered=both), BEN),
        (request(offered=["ow_ann", "xtoken.ow_ann"]), None),
        (request(), None),
        (request(offered=None), None),
    ):
        chosen = PROTOCOL if asked.scope["subprotocols"] == both else None
        assert admit(server(), asked) == Admission(caller, chosen)
    without = request()
    del without.scope["subprotocols"]
    assert admit(server(), without) == (None, None, False)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (request(authorization="Bearer ow_eve"), "no_credentials"),
        (request(authorization="Bearer ow_eve", offered=["token.ow_ann"]), "no_credentials"),
        (request(authorization="", offered=["token.ow_ann"]), "no_credentials"),
        (request(offered=["token.ow_eve", "token.ow_ann"]), "no_credentials"),
        (request(offered=["token."]), "no_credentials"),
        (request(authorization="Bearer ow_ann", origin="http://there"), "origin_refused"),
        (request(offered=["token.ow_ann"], origin="null"), "origin_refused"),
        (request(authorization="Bearer ow_ann", query=b"a=b"), "bad_parameter"),
        (request(authorization="Bearer ow_ann", path="/v1/rooms"), "not_found"),
    ],
)
def test_a_request_that_is_not_right_is_refused(asked: Any, code: str) -> None:
    assert refused(server(), asked) == code


def test_pages_of_the_server_itself_and_of_allowed_sites_are_taken() -> None:
    for origin in ("http://here:80", "https://app.example"):
        asked = request(authorization="Bearer ow_ann", origin=origin)
        found = admit(server(origins=frozenset({"https://app.example"})), asked)
        assert found == Admission(ANN, None)


def test_in_dev_mode_the_server_tells_who_it_is() -> None:
    asked = request(offered=[PROTOCOL, "token.ow_eve"])
    assert admit(server(dev=True), asked) == Admission(DEVELOPER, PROTOCOL)


def test_a_server_that_stops_takes_nobody_any_more() -> None:
    stopping = server()
    stopping.draining.set()
    with pytest.raises(Unavailable) as found:
        admit(stopping, request(authorization="Bearer ow_ann"))
    assert found.value.code == "node_stopped"


@pytest.mark.parametrize("dev", [True, False])
def test_another_node_is_taken_for_whom_it_asks(dev: bool) -> None:
    node = {"authorization": f"Node {SECRET}", "onceward_user": "ann%20%C3%BC"}
    caller = Access(Caller("user", "", "ann ü"), EVERYTHING)
    assert admit(server(dev=dev), request(**node, offered=[PROTOCOL])) == Admission(
        caller, PROTOCOL, relayed=True
    )
    assert behind(server(dev=dev), request(**node)) == caller


def test_who_comes_by_itself_is_not_relayed() -> None:
    for asked in (request(), request(authorization="Bearer ow_ann", onceward_user="ben")):
        assert admit(server(), asked).relayed is False


@pytest.mark.parametrize("dev", [True, False])
@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Node guessed", "onceward_user": "ann"},
        {"authorization": "Node ", "onceward_user": "ann"},
        {"authorization": "Node ow_ann", "onceward_user": "ann"},
        {"authorization": f"Node  {SECRET}", "onceward_user": "ann"},
        {"authorization": f"Node {SECRET}"},
        {"authorization": f"Node {SECRET}", "onceward_user": ""},
        {"authorization": f"Node {SECRET}", "user": "ann"},
    ],
)
def test_who_only_says_to_be_a_node_is_refused(headers: dict[str, str], dev: bool) -> None:
    assert is_from_node(request(**headers))
    assert refused(server(dev=dev), request(**headers)) == "no_credentials"
    with pytest.raises(BadInput) as found:
        behind(server(dev=dev), request(**headers))
    assert found.value.code == "no_credentials"


def test_a_node_asks_for_nobody_without_a_secret() -> None:
    with pytest.raises(BadInput) as found:
        behind(server(), request(onceward_user="ann"))
    assert found.value.code == "no_credentials"


@pytest.mark.parametrize("authorization", ["Bearer ow_ann", "node x", "Nodes x", "Node", ""])
def test_only_what_begins_with_the_scheme_of_nodes_is_from_one(authorization: str) -> None:
    assert not is_from_node(request(authorization=authorization))
    assert is_from_node(request(authorization="Node x")) is True
    assert is_from_node(request()) is False


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://[", None),
        ("http://[", ""),
        ("http://[", "x"),
        ("http://[", "["),
        ("http://x", None),
        ("http://x", ""),
        ("http://", ""),
        ("null", None),
        ("null", ""),
        ("", ""),
        ("http://host:81", "host:80"),
        ("http://user@host", "host"),
    ],
)
def test_an_origin_that_is_no_site_or_another_one_is_refused(origin: str, host: str | None) -> None:
    with pytest.raises(OncewardError) as found:
        admit_origin(origin, host, ())
    assert found.value.code == "origin_refused"
