"""Which address leads where."""

from typing import Any

import pytest

from onceward.errors import BadInput
from onceward.web.forms import FORM
from onceward.web.http import Request, Response
from onceward.web.routes import Route, Routes, words_of


async def nothing(server: Any, request: Request) -> Response:
    return Response(200)


TABLE = [
    Route("GET", "/things", nothing, "all"),
    Route("GET", "/things/{name}", nothing, "one"),
    Route("DELETE", "/things/{name}", nothing, "remove one"),
    Route("POST", "/things/make", nothing, "make one"),
    Route("POST", "/things/{name}/parts/{part}", nothing, "make a part"),
]
ROUTES = Routes(TABLE)


def asked(method: str, path: str, **scope: Any) -> Request:
    raw = path.encode(errors="replace")
    return Request({"method": method, "path": path, "raw_path": raw, **scope})


def find(method: str, path: str, **scope: Any) -> tuple[str, dict[str, str]]:
    request = asked(method, path, **scope)
    route = ROUTES.find(request)
    assert request.route == route.path
    return route.summary, request.parameters


def refusal(method: str, path: str, routes: Routes = ROUTES, **scope: Any) -> BadInput:
    with pytest.raises(BadInput) as refused:
        routes.find(asked(method, path, **scope))
    return refused.value


def test_the_table_is_read_in_its_order() -> None:
    assert list(ROUTES) == TABLE


def test_a_route_answers_with_200_and_not_to_everybody_unless_it_says_so() -> None:
    assert (TABLE[0].statuses, TABLE[0].public) == ((200,), False)


def test_addresses_lead_to_their_routes() -> None:
    assert find("GET", "/things") == ("all", {})
    assert find("HEAD", "/things") == ("all", {})
    assert find("GET", "/things?x=/y") == ("all", {})
    assert find("GET", "/things?") == ("all", {})
    assert find("GET", "/things/a") == ("one", {"name": "a"})
    assert find("POST", "/things/make") == ("make one", {})
    assert find("POST", "/things/a/parts/b") == ("make a part", {"name": "a", "part": "b"})


def test_the_last_name_may_be_the_same_as_a_word() -> None:
    assert find("GET", "/things/make") == ("one", {"name": "make"})


def test_a_name_may_have_any_characters_in_it() -> None:
    assert find("GET", "/things/a%2Fb%3F%25")[1] == {"name": "a/b?%"}
    assert find("GET", "/things/%C3%BC+%20")[1] == {"name": "ü+ "}
    assert find("GET", "/things/%zz%")[1] == {"name": "%zz%"}


@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "/thing", "/things/", "/things//", "//things", "/things/a/b", "things", "/*"),
        "/x/things",
    ],
)
def test_there_is_nothing_at_other_addresses(path: str) -> None:
    assert refusal("GET", path).code == "not_found"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/things", "GET, HEAD"),
        ("PUT", "/things/a", "DELETE, GET, HEAD"),
        ("OPTIONS", "/things/a", "DELETE, GET, HEAD"),
        ("PUT", "/things/make", "POST"),
        ("GET", "/things/a/parts/b", "POST"),
        ("HEAD", "/things/a/parts/b", "POST"),
        ("X" * 1_000, "/things", "GET, HEAD"),
    ],
)
def test_another_method_is_refused_with_those_that_are_taken(
    method: str, path: str, allowed: str
) -> None:
    error = refusal(method, path)
    assert (error.code, error.details["allow"]) == ("method_not_allowed", allowed)
    assert len(error.message) < 200


def test_an_address_is_text_without_nul() -> None:
    assert refusal("GET", "/things/%ff").code == "not_text"
    assert refusal("GET", "/%ed%a0%80/a").code == "not_text"
    assert refusal("GET", "/things/a%00").code == "bad_name"


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_name_is_never_empty(method: str) -> None:
    """Not even if the address is the one at which all of it is mounted."""
    routes = Routes([Route("POST", "/{name}", nothing, "make one")])
    assert refusal(method, "", routes).code == "not_found"
    assert refusal(method, "/at", routes, root_path="/at").code == "not_found"
    assert refusal(method, "/", routes).code == "not_found"
    front = Routes([*routes, Route("PUT", "/", nothing, "front")])
    assert refusal(method, "/", front).details["allow"] == "PUT"


@pytest.mark.parametrize(
    ("root", "prefix"),
    [
        ("/api", "/api"),
        ("/api/", "/api"),
        ("/x/max", "/x/max"),
        ("/a b/ü", "/a%20b/%C3%BC"),
    ],
)
def test_it_may_be_mounted_below_an_address(root: str, prefix: str) -> None:
    assert find("GET", f"{prefix}/things/a%2F", root_path=root)[1] == {"name": "a/"}
    assert refusal("GET", prefix + "/other", root_path=root).code == "not_found"
    # Where a proxy has removed it.
    assert find("GET", "/things/a", root_path=root)[1] == {"name": "a"}


def test_the_words_of_an_address_are_those_below_where_it_is_mounted() -> None:
    assert words_of({"path": "/at/a/b"}) == ["at", "a", "b"]
    assert words_of({"path": "/at/a/b", "root_path": "/at"}) == ["a", "b"]
    assert words_of({"path": "/x/a"}) == ["x", "a"]


def test_a_server_that_gives_no_raw_path_is_understood() -> None:
    assert find("GET", "/things/ü %", raw_path=None)[1] == {"name": "ü %"}
    assert find("GET", "/things/%41", raw_path=None)[1] == {"name": "%41"}
    assert refusal("GET", "/things/\ud800", raw_path=None).code == "not_text"


def test_two_routes_cannot_have_the_same_address() -> None:
    twice = Route("GET", "/a", nothing, "")
    with pytest.raises(AssertionError):
        Routes([twice, twice])


def test_a_route_takes_json_and_needs_credentials_by_default() -> None:
    [route, *_] = TABLE
    assert (route.forms, route.public, route.signs_in) == (False, False, False)
    assert FORM == "application/x-www-form-urlencoded"
