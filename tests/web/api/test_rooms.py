"""Rooms over HTTP."""

from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest

from onceward import limits
from tests.rooms.people import Badge, Person
from tests.schedule.cluster import virtual
from tests.web.asgi import Caller, serving, serving_to


def map_set(key: str, value: Any) -> dict[str, Any]:
    return {"op": "map.set", "map": "m", "key": key, "value": value}


async def step(caller: Caller, *ops: Any, room: str = "r", **more: Any) -> Any:
    return await caller.ok("POST", f"/v1/rooms/{room}/ops", {"ops": ops, **more})


@virtual
async def test_a_room_is_made_seen_changed_and_deleted() -> None:
    async with serving() as caller:
        made = await caller.ok("POST", "/v1/rooms", {"id": "r", "meta": {"team": "a"}})
        assert (made["id"], made["seq"], made["by"]) == ("r", 0, "developer")
        assert await caller.ok("GET", "/v1/rooms/r") == made
        again = await caller("POST", "/v1/rooms", {"id": "r"})
        assert again.verdict == (409, "room_exists")
        changed = await caller.ok("PATCH", "/v1/rooms/r", {"capacity": 5})
        assert (changed["capacity"], changed["meta"]) == (5, {"team": "a"})
        assert changed["per_user"] == limits.ROOM_PER_USER
        assert (await caller.ok("PATCH", "/v1/rooms/r", {"per_user": 3}))["per_user"] == 3
        assert await caller.ok("DELETE", "/v1/rooms/r") == {"id": "r", "epoch": made["epoch"]}
        gone = await caller("GET", "/v1/rooms/r")
        assert gone.verdict == (404, "no_such_room")
        named = await caller.ok("POST", "/v1/rooms", {})
        assert UUID(named["id"]).version == 7


@virtual
async def test_rooms_are_found_by_prefix_and_metadata() -> None:
    async with serving() as caller:
        for number in range(5):
            meta = {"odd": bool(number % 2)}
            await caller.ok("POST", "/v1/rooms", {"id": f"board.{number}", "meta": meta})
        await caller.ok("POST", "/v1/rooms", {"id": "other"})

        async def find(query: str) -> Any:
            page = await caller.ok("GET", f"/v1/rooms?{query}")
            return [room["id"] for room in page["rooms"]], page["next"]

        boards = [f"board.{number}" for number in range(5)]
        assert await find("") == ([*boards, "other"], None)
        assert await find("prefix=board.") == (boards, None)
        first, cursor = await find("prefix=board.&limit=2")
        assert first == boards[:2]
        assert (await find(f"prefix=board.&after={cursor}"))[0] == boards[2:]
        odd = quote('{"odd": true}')
        assert await find(f"meta={odd}") == (["board.1", "board.3"], None)
        bad = await caller("GET", "/v1/rooms?meta=x")
        assert bad.verdict == (400, "not_json")


@virtual
async def test_steps_are_taken_once_and_seen_now_and_as_they_were() -> None:
    async with serving() as caller:
        await caller.ok("POST", "/v1/rooms", {"id": "r"})
        assert await step(caller, map_set("k", 1)) == {"seq": 1, "duplicate": False}
        assert await step(caller, map_set("k", 2), client="c", n=1) == {
            "seq": 2,
            "duplicate": False,
        }
        assert await step(caller, map_set("k", 3), client="c", n=1) == {
            "seq": None,
            "duplicate": True,
        }
        now = await caller.ok("GET", "/v1/rooms/r/snapshot")
        assert (now["seq"], now["maps"]) == (2, {"m": {"k": 2}})
        before = await caller.ok("GET", "/v1/rooms/r/snapshot?at=1")
        assert (before["seq"], before["maps"]) == (1, {"m": {"k": 1}})
        history = await caller.ok("GET", "/v1/rooms/r/history?since=1")
        assert [entry["seq"] for entry in history["entries"]] == [2]
        assert history["next"] is None
        digests = [before["digest"], now["digest"]]
        assert history["entries"][0]["digest"] == digests[1]
        assert (await caller.ok("GET", "/v1/rooms/r"))["digest"] == digests[1]
        for since, digest in ((0, ""), (1, digests[0]), (2, digests[1])):
            path = f"/v1/rooms/r/history?since={since}&digest="
            assert len((await caller.ok("GET", path + digest))["entries"]) == 2 - since
            other = await caller("GET", f"{path}{digests[since % 2 - 1][::-1]}x")
            assert other.verdict == (410, "history_gone")
        page = await caller.ok("GET", "/v1/rooms/r/history?limit=1")
        assert ([entry["seq"] for entry in page["entries"]], page["next"]) == ([1], 1)
        ahead = await caller("GET", "/v1/rooms/r/snapshot?at=9")
        assert ahead.verdict == (410, "history_gone")


@virtual
async def test_a_page_of_history_has_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PAGE_BYTES_MAX", 3_000)
    async with serving() as caller:
        await caller.ok("POST", "/v1/rooms", {"id": "r"})
        for size in (1_000, 1_000, 4_000, 4_000, 1):
            await step(caller, map_set("k", "x" * size))
        seqs, since = [], 0
        while since is not None:
            page = await caller.ok("GET", f"/v1/rooms/r/history?since={since}")
            seqs.append([entry["seq"] for entry in page["entries"]])
            since = page["next"]
        assert seqs == [[1, 2], [3], [4], [5]]


@virtual
async def test_whole_maps_lists_and_presences_come_and_go() -> None:
    async with serving() as caller:
        await caller.ok("POST", "/v1/rooms", {"id": "r"})
        for kind in ("maps", "lists"):
            path = f"/v1/rooms/r/{kind}/it"
            assert (await caller("GET", path)).verdict == (404, "not_found")
            await caller.ok("PUT", path)
            await caller.ok("PUT", path, {"schema": {"type": "number"}})
            await caller.ok("GET", path)
            for there in (True, False):
                assert await caller.ok("DELETE", path) == {"dropped": there}
        await step(caller, {"op": "list.insert", "list": "it", "id": "a", "value": 7})
        found = await caller.ok("GET", "/v1/rooms/r/lists/it")
        assert found == {"name": "it", "items": [["a", 7]]}
        refused = await caller(
            "POST",
            "/v1/rooms/r/ops",
            {"ops": [{"op": "list.insert", "list": "it", "id": "b", "value": "text"}]},
        )
        assert refused.verdict == (422, "bad_shape")
        await caller.ok("PUT", "/v1/rooms/r/presences/cursor", {"schema": {"type": "object"}})
        seen = await caller.ok("GET", "/v1/rooms/r/presences/cursor")
        assert seen == {"name": "cursor", "values": {}}
        assert await caller.ok("DELETE", "/v1/rooms/r/presences/cursor") == {"dropped": False}
        assert await caller.ok("POST", "/v1/rooms/r/broadcast", {"event": "e"}) == {"members": 0}


@virtual
async def test_the_creator_of_a_room_is_a_member_before_it_joins() -> None:
    async with serving_to(ann="write:*", ben="read:*") as callers:
        ann, ben = callers["ann"], callers["ben"]
        hub = ann.app.hub

        async def members() -> Any:
            found = [await one.ok("GET", "/v1/rooms/r/members") for one in (ann, ben)]
            assert found[0] == found[1]
            return found[0]["members"]

        creator = (await ann.ok("POST", "/v1/rooms", {"id": "r", "capacity": 1}))["by"]
        assert await members() == [{"id": "", "user": creator}]
        # It takes no capacity, and keeps its place while it cannot join.
        guest, person = Person(hub, Badge("guest")), Person(hub, Badge(creator))
        for one in (guest, person):
            one.ask("hello")
        here = (await guest.join("r"))["me"]
        person.ask("join", room="r", client="c")
        assert (await person.next("joined", "left"))["code"] == "room_full"
        both = [{"id": "", "user": creator}, {"id": here, "user": "guest"}]
        assert await members() == both
        guest.ask("leave", room="r")
        me = (await person.join("r"))["me"]
        assert await members() == [{"id": me, "user": creator}]
        person.ask("leave", room="r")
        person.ask("ping")
        await person.next("pong")
        assert await members() == []


@virtual
async def test_a_room_without_a_creator_or_made_by_a_join_reserves_no_place() -> None:
    async with serving() as caller:
        app = caller.app
        person = Person(app.hub, Badge("ann"))
        person.ask("hello")
        await person.join("joined", create=True)
        await app.run(lambda tx: app.rooms.create(tx, "nobody's"))
        person.ask("leave", room="joined")
        person.ask("ping")
        await person.next("pong")
        for id_ in ("joined", "nobody's"):
            assert await caller.ok("GET", f"/v1/rooms/{id_}/members") == {"members": []}


BAD = [
    ("POST", "/v1/rooms", {"id": "x" * 300}, 422, "bad_name"),
    ("POST", "/v1/rooms", {"capacity": 0}, 422, "wrong_type"),
    ("POST", "/v1/rooms", {"per_user": 0}, 422, "wrong_type"),
    (
        "POST",
        "/v1/rooms",
        {"id": "q", "schemas": {"maps": {"m": {"type": "x"}}}},
        422,
        "bad_schema",
    ),
    ("POST", "/v1/rooms", {"meta": {"a": "x" * 20_000}}, 413, "value_too_large"),
    ("POST", "/v1/rooms", {"colour": "red"}, 422, "unknown_member"),
    ("GET", "/v1/rooms?limit=0", None, 422, "bad_parameter"),
    ("GET", "/v1/rooms?colour=red", None, 422, "bad_parameter"),
    ("GET", "/v1/rooms/none", None, 404, "no_such_room"),
    ("DELETE", "/v1/rooms/none", None, 404, "no_such_room"),
    ("GET", "/v1/rooms/none/members", None, 404, "no_such_room"),
    ("GET", "/v1/rooms/none/snapshot", None, 404, "no_such_room"),
    ("GET", "/v1/rooms/none/history", None, 404, "no_such_room"),
    ("GET", "/v1/rooms/r/snapshot?at=-1", None, 422, "bad_parameter"),
    ("GET", "/v1/rooms/r/history?since=x", None, 422, "bad_parameter"),
    ("POST", "/v1/rooms/none/ops", {"ops": [map_set("k", 1)]}, 404, "no_such_room"),
    ("POST", "/v1/rooms/r/ops", {"ops": []}, 400, "bad_request"),
    ("POST", "/v1/rooms/r/ops", {"ops": [{"op": "dance"}]}, 422, "wrong_type"),
    (
        "POST",
        "/v1/rooms/r/ops",
        {"ops": [map_set("k", 1)], "client": "c", "n": 0},
        422,
        "wrong_type",
    ),
    ("POST", "/v1/rooms/r/ops", {"ops": [map_set("k", [2**53])]}, 422, "bad_value"),
    ("POST", "/v1/rooms/r/ops", {"ops": [map_set("k", {"a": 1e16})]}, 422, "bad_value"),
    ("POST", "/v1/rooms/r/broadcast", {"event": "e", "value": 2**64}, 422, "bad_value"),
    ("POST", "/v1/rooms", {"id": "s", "meta": {"n": 2**53}}, 422, "bad_value"),
    ("POST", "/v1/rooms/r/broadcast", {"event": ""}, 422, "bad_name"),
    ("POST", "/v1/rooms/r/broadcast", {"event": "e", "to": "nobody"}, 404, "no_such_member"),
    ("PUT", "/v1/rooms/r/maps/m", {"schema": {"type": "x"}}, 422, "bad_schema"),
    ("PUT", "/v1/rooms/none/maps/m", None, 404, "no_such_room"),
    ("GET", "/v1/rooms/none/presences/p", None, 404, "no_such_room"),
    ("GET", "/v1/ws", None, 426, "upgrade_required"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "code"), BAD)
def test_bad_input_gets_a_clear_error(
    method: str, path: str, body: Any, status: int, code: str
) -> None:
    @virtual
    async def run() -> None:
        async with serving() as caller:
            await caller.ok("POST", "/v1/rooms", {"id": "r"})
            assert (await caller(method, path, body)).verdict == (status, code)

    run()


@virtual
async def test_scopes_say_who_may_do_what() -> None:
    async with serving_to(reader="read:r", writer="write:r", owner="room:r", other="read:s") as who:
        await who["writer"].ok("POST", "/v1/rooms", {"id": "r"})
        for name, deeds in (("reader", 1), ("writer", 2), ("owner", 3), ("other", 0)):
            caller = who[name]
            for least, method, path, body in (
                (1, "GET", "/v1/rooms/r/snapshot", None),
                (2, "POST", "/v1/rooms/r/ops", {"ops": [map_set("k", 1)]}),
                (3, "PATCH", "/v1/rooms/r", {"capacity": 9}),
            ):
                answer = await caller(method, path, body)
                assert answer.status == (200 if deeds >= least else 403), (name, path)
            found = await caller.ok("GET", "/v1/rooms")
            assert len(found["rooms"]) == (1 if deeds else 0)
        refused = await who["reader"]("POST", "/v1/rooms", {"id": "r"})
        assert refused.verdict == (403, "not_allowed")


@virtual
async def test_a_page_of_rooms_names_none_that_may_not_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "LIST_MAX", 2)
    async with serving_to(maker="write:*", reader="read:b*") as who:
        for id_ in ("a1", "a2", "a3", "b1", "b2", "c1", "c2", "c3"):
            await who["maker"].ok("POST", "/v1/rooms", {"id": id_})
        pages: list[Any] = []
        path = "/v1/rooms?limit=1"
        while not pages or pages[-1][1]:
            page = await who["reader"].ok("GET", path)
            pages.append(([room["id"] for room in page["rooms"]], page["next"]))
            path = f"/v1/rooms?limit=1&after={page['next']}"
        assert [rooms for rooms, _ in pages] == [["b1"], ["b2"], []]


@virtual
async def test_a_schema_and_values_that_take_very_long_to_compare_are_refused() -> None:
    async with serving_to(ann="write:*") as callers:
        ann = callers["ann"]
        schema = {"items": {"anyOf": [*[{"const": 0}] * 2_000, {"const": 1}]}}
        await ann.ok("POST", "/v1/rooms", {"id": "r", "schemas": {"maps": {"m": schema}}})

        def ops(*values: Any) -> Any:
            sets = [{"op": "map.set", "map": "m", "key": "k", "value": value} for value in values]
            return {"ops": sets}

        await ann.ok("POST", "/v1/rooms/r/ops", ops([1] * 10))
        # However they are spread over the operations of a step.
        for step in (ops([1] * 1_000), ops(*[[1] * 10] * 100)):
            answer = await ann("POST", "/v1/rooms/r/ops", step)
            assert answer.verdict == (422, "bad_shape")
            assert "comparisons" in answer.json["detail"]
