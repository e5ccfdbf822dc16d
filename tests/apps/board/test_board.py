"""Boards over HTTP: the page, and tickets that let guests into one board each."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from apps.board import Board, limits
from onceward.errors import OncewardError
from onceward.limits import TOKEN_SLACK_MS
from onceward.web.auth import Auth, JwtKey
from tests.rooms.people import Badge, Person
from tests.schedule.cluster import virtual
from tests.web.asgi import Caller, serving
from tests.work.apps import Apps

KEY = JwtKey("HS256", "s" * 32, "boards", issuer="board", id="one")
PAGE = Path(__file__).parents[3] / "apps" / "board" / "page"


@asynccontextmanager
async def boards(key: JwtKey | None = None, **options: Any) -> AsyncIterator[Caller]:
    app = Apps(shared=False).make()
    app.mount("/board", Board(app, key=key, **options).site())
    auth = None if key is None else Auth(jwt_keys=[key])
    async with serving(app, auth) as caller:
        yield caller


@virtual
async def test_a_ticket_lets_a_guest_into_a_board_that_is_made_once() -> None:
    async with boards() as caller:
        tickets = [await caller.ok("POST", "/board/team/ticket", {"name": "Ann"}) for _ in range(3)]
        assert {ticket["room"] for ticket in tickets} == {"board/team"}
        users = [ticket["user"] for ticket in tickets]
        assert len(set(users)) == 3, "each tab is a guest of its own"
        assert all(re.fullmatch(r"Ann~[0-9A-Z]{8}", user) for user in users)
        assert [ticket["token"] for ticket in tickets] == [f"dev:{user}" for user in users]
        info = await caller.ok("GET", "/v1/rooms/board%2Fteam")
        assert (info["by"], info["keep"]) == (users[0], limits.KEEP_STEPS)


@virtual
async def test_without_a_key_for_tickets_there_are_none_where_there_are_keys() -> None:
    app = Apps(shared=False).make()
    app.mount("/board", Board(app).site())
    async with serving(app, Auth(jwt_keys=[KEY])) as caller:
        local = [("host", "localhost")]
        answer = await caller("POST", "/board/team/ticket", {"name": "Ann"}, headers=local)
        assert answer.verdict == (401, "no_credentials")


@virtual
async def test_a_guest_who_comes_back_with_the_ticket_is_the_same() -> None:
    for key in (None, KEY):
        async with boards(key) as caller:
            first = await caller.ok("POST", "/board/team/ticket", {"name": "Ann"})
            body = {"name": "Ann", "token": first["token"]}
            assert (await caller.ok("POST", "/board/team/ticket", body))["user"] == first["user"]
            for token in ("nothing", first["token"][:-1], "dev:developer"):
                other = await caller.ok("POST", "/board/team/ticket", {**body, "token": token})
                assert key is None or other["user"] != first["user"]
                assert other["user"].startswith("Ann~")


@virtual
@pytest.mark.parametrize("label", ["", "boards"])
async def test_a_guest_stays_the_same_whatever_the_name_looks_like(label: str) -> None:
    key = replace(KEY, label=label)
    async with boards(key) as caller:
        for name in ("Ann", "key:billing", "user:ben", "x all", "*"):
            ticket = await caller.ok("POST", "/board/team/ticket", {"name": name})
            for _ in range(3):
                body = {"name": name, "token": ticket["token"]}
                again = await caller.ok("POST", "/board/team/ticket", body)
                assert again["user"] == ticket["user"]
                access = caller.server.auth.caller(f"Bearer {again['token']}", 0)
                assert (access.user, access.caller.kind) == (again["user"], "user")
                assert access.grants.named == {("write", "board/team")}
                ticket = again


@virtual
async def test_a_signed_ticket_is_good_for_its_board_alone_and_for_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "TICKET_MS", 60_000)
    async with boards(KEY) as caller:
        team = await caller.ok("POST", "/board/team/ticket", {"name": "Ann"})
        other = await caller.ok("POST", "/board/other/ticket", {"name": "Ben"})
        ann, ben = (Caller(caller.server, ticket["token"]) for ticket in (team, other))
        path = "/v1/rooms/board%2Fteam"
        push = [{"op": "map.set", "map": "texts", "key": "n", "value": "hi"}]
        assert (await ann.ok("POST", f"{path}/ops", {"ops": push}))["seq"] == 1
        assert (await ben("GET", f"{path}/snapshot")).verdict == (403, "not_allowed")
        assert (await ben("POST", f"{path}/ops", {"ops": push})).verdict == (403, "not_allowed")
        assert (await ann("DELETE", path)).verdict == (403, "not_allowed")
        assert (await caller("GET", path)).verdict == (401, "no_credentials")
        await caller.app.store.clock.sleep(61 + TOKEN_SLACK_MS / 1000)
        assert (await ann("GET", f"{path}/snapshot")).verdict == (401, "token_expired")


async def rooms_of(caller: Caller) -> list[str]:
    found = (await caller.ok("GET", "/v1/rooms"))["rooms"]
    return [room["id"].removeprefix("board/") for room in found]


@virtual
async def test_visitors_create_a_limited_number_of_boards() -> None:
    async with boards(boards_max=3, named=["welcome", "team"]) as caller:
        rooms = caller.app.rooms
        await caller.app.run(lambda tx: rooms.create(tx, "board/ours"))
        asked = [caller("POST", f"/board/b{n}/ticket", {"name": "Eve"}) for n in range(10)]
        answers = await asyncio.gather(*asked)
        assert sorted(answer.status for answer in answers) == [200] * 3 + [409] * 7
        refused = next(answer for answer in answers if answer.status == 409)
        assert refused.verdict == (409, "too_many_rooms")
        assert "there are 3 boards already; open an existing one" in refused.json["detail"]
        for name in ("welcome", "team", "ours", (await rooms_of(caller))[0]):
            await caller.ok("POST", f"/board/{name}/ticket", {"name": "Ann"})
        assert len(await rooms_of(caller)) == 6


@virtual
async def test_boards_of_visitors_expire_and_others_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "SWEEP_MS", 500)
    note = {"op": "list.insert", "list": "notes", "id": "n", "value": {"colour": "sky", "by": "A"}}
    async with boards(boards_max=3, empty_s=1, idle_s=5) as caller:
        for name in ("empty", "full", "kept", "welcome"):
            await caller.ok("POST", f"/board/{name}/ticket", {"name": "Ann"})
        await caller.app.run(lambda tx: caller.app.rooms.create(tx, "board/ours"))
        for name in ("full", "kept"):
            await caller.ok("POST", f"/v1/rooms/board%2F{name}/ops", {"ops": [note]})

        async def after(seconds: int) -> list[str]:
            await caller.app.store.clock.sleep(seconds)
            await caller.ok("POST", "/board/welcome/ticket", {"name": "Ann"})
            return await rooms_of(caller)

        assert await after(1) == ["full", "kept", "ours", "welcome"]
        text = {"op": "map.set", "map": "texts", "key": "n", "value": "hi"}
        await caller.ok("POST", "/v1/rooms/board%2Fkept/ops", {"ops": [text]})
        assert await after(4) == ["kept", "ours", "welcome"]
        await caller.ok("POST", "/board/again/ticket", {"name": "Ann"})
        assert await after(1) == ["ours", "welcome"]


@virtual
async def test_a_board_that_someone_is_on_does_not_expire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "SWEEP_MS", 500)
    async with boards(empty_s=1) as caller:
        await caller.ok("POST", "/board/team/ticket", {"name": "Ann"})
        ann = Person(caller.app.hub, Badge("ann"))
        ann.ask("hello")
        await ann.join("board/team")
        await caller.app.store.clock.sleep(2)
        await caller.ok("POST", "/board/welcome/ticket", {"name": "Ann"})
        assert await rooms_of(caller) == ["team", "welcome"]


@virtual
async def test_names_that_are_none_are_refused_and_make_no_room() -> None:
    async with boards() as caller:
        for name in ("Team", "a b", "-a", "a_b", "ä", "a" * 41, "a%2Fb", ".."):
            assert (await caller("GET", f"/board/{name}")).status == 404, name
            answer = await caller("POST", f"/board/{name}/ticket", {"name": "Ann"})
            assert answer.verdict == (404, "not_found"), name
        for body, verdict in (
            ({"name": ""}, (422, "wrong_type")),
            ({"name": "x" * 41}, (422, "wrong_type")),
            ({"name": " ~ "}, (422, "bad_name")),
            ({"name": "a\x1bb"}, (422, "bad_name")),
            ({"name": 1}, (422, "wrong_type")),
            ({}, (422, "missing_member")),
            ({"name": "Ann", "user": "Ben"}, (422, "unknown_member")),
        ):
            assert (await caller("POST", "/board/team/ticket", body)).verdict == verdict, body
        assert (await caller("POST", "/board/team/ticket", raw=b"{")).verdict == (400, "not_json")
        assert (await caller.ok("GET", "/v1/rooms"))["rooms"] == []


@virtual
async def test_a_name_is_shown_as_it_is_but_for_white_space_and_the_mark() -> None:
    async with boards() as caller:
        for name, shown in (("  Ann\t Lee ", "Ann Lee"), ("a~b~", "a b"), ("Łucja 🦊", "Łucja 🦊")):
            ticket = await caller.ok("POST", "/board/team/ticket", {"name": name})
            assert ticket["user"].rpartition("~")[0] == shown


@virtual
async def test_without_a_key_pages_of_other_sites_get_no_ticket() -> None:
    strangers = ([("host", "evil.example")], [("origin", "https://evil.example")])
    verdicts = ((421, "wrong_host"), (403, "origin_refused"))
    async with boards() as caller:
        for headers, verdict in zip(strangers, verdicts, strict=True):
            answer = await caller("POST", "/board/team/ticket", {"name": "A"}, headers=headers)
            assert answer.verdict == verdict
    async with boards(KEY) as caller:
        assert (await caller("POST", "/board/a/ticket", {"name": "A"}, headers=strangers[0])).json


@virtual
async def test_what_is_no_note_is_refused_by_the_room() -> None:
    note = {"op": "list.insert", "list": "notes", "id": "n", "value": {"colour": "sky", "by": "A"}}
    place = {"op": "map.set", "map": "places", "key": "n", "value": {"x": 1.5, "y": -2}}
    text = {"op": "map.set", "map": "texts", "key": "n", "value": "hi"}
    async with boards() as caller:
        await caller.ok("POST", "/board/team/ticket", {"name": "Ann"})
        path = "/v1/rooms/board%2Fteam/ops"
        for wrong in (
            {**note, "value": {"colour": "black", "by": "A"}},
            {**note, "value": {"colour": "sky"}},
            {**note, "value": "sky"},
            {**place, "value": {"x": 1}},
            {**place, "value": {"x": 1e9, "y": 0}},
            {**place, "value": {"x": 0, "y": 0, "z": 0}},
            {**text, "value": 1},
            {**text, "value": "x" * (limits.TEXT_CHARS_MAX + 1)},
        ):
            assert (await caller("POST", path, {"ops": [wrong]})).verdict == (422, "bad_shape")
        assert (await caller.ok("POST", path, {"ops": [note, place, text]}))["seq"] == 1


@virtual
async def test_the_page_has_no_script_within_and_may_load_none_from_elsewhere() -> None:
    async with boards() as caller:
        page = await caller("GET", "/board/team")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        text = page.body.decode()
        assert text.count("<script") == 1
        assert '<script type="module" src="page/board.js"></script>' in text
        assert "<style" not in text
        assert " style=" not in text
        assert re.search(r"<[^>]* on\w+=", text) is None
        for path in PAGE.iterdir():
            file = await caller("GET", f"/board/page/{path.name}")
            assert file.status == 200
            assert file.headers["x-content-type-options"] == "nosniff"
            assert path.suffix != ".js" or "text/javascript" in file.headers["content-type"]
            assert not re.search(r"innerHTML|insertAdjacentHTML|eval\(", file.body.decode())
        for path in ("/board/page/other.js", "/board/page/..%2Fboard.py", "/board/team/more"):
            assert (await caller("GET", path)).status == 404, path
        for path in ("/board", "/board/"):
            front = await caller("GET", path)
            assert (front.status, front.headers["location"]) == (302, "/board/welcome")


def test_the_page_knows_the_limits_and_colours_that_the_room_has() -> None:
    text = (PAGE / "model.js").read_text()
    said: dict[str, Any] = {
        name: json.loads(value.replace("_", ""))
        for name, value in re.findall(r"^export const ([A-Z_]+) = (.+?);", text, re.MULTILINE)
    }
    from apps.board.shapes import COLOURS

    assert said["COLOURS"] == list(COLOURS)
    assert said["TEXT_MAX"] == limits.TEXT_CHARS_MAX
    assert said["NAME_MAX"] == limits.NAME_CHARS_MAX
    assert said["FAR"] == limits.PLACE_MAX


def test_tickets_are_signed_with_a_secret_alone() -> None:
    app = Any
    with pytest.raises(OncewardError) as caught:
        Board(app, key=JwtKey("ES256", "key", "boards"))  # type: ignore[arg-type]
    assert caught.value.code == "bad_settings"
    with pytest.raises(OncewardError) as caught:
        Board(app, key=JwtKey("HS256", "short", "boards"))  # type: ignore[arg-type]
    assert caught.value.code == "bad_settings"
