"""Tables over HTTP: people act for themselves, servers for others, and nobody by mistake."""

from typing import Any

import pytest

from onceward import tokens
from onceward.errors import BadInput
from onceward.tables import Ending, Table
from onceward.web.auth import Auth, JwtKey
from tests.schedule.cluster import virtual
from tests.web.asgi import Caller, keyed, serving
from tests.work.apps import Apps


class Highest:
    """A game of one move each: who says the higher number has won."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def begin(self, tx: Any, table: Table) -> None:
        tx.delete(("highest", table.id))

    async def move(self, tx: Any, table: Table, user: str, move: Any) -> Any:
        if type(move) is not int:
            raise BadInput("say a number", code="bad_move")
        said = {**(await tx.get(("highest", table.id)) or {}), user: move}
        tx.put(("highest", table.id), said)
        if len(said) == 2:
            best = max(said, key=lambda name: said[name])
            await self.app.seats.result(tx, table.id, [best], game=table.number)
        return {"said": len(said)}

    async def ended(self, tx: Any, table: Table, ending: Ending) -> None:
        pass


@virtual
async def test_people_sit_down_play_and_wait() -> None:
    app = Apps(shared=False).make()
    app.referee("highest", Highest(app))
    async with serving(app) as caller:
        made = await caller.ok(
            "POST", "/v1/tables", {"id": "t 1", "game": "highest", "policy": {"kind": "speed"}}
        )
        assert (made["phase"], made["seats"]) == ("waiting", {"X": None, "O": None})
        assert made["policy"]["turn_ms"] == 10_000
        path = "/v1/tables/t%201"
        for user in ("ann", "ben", "cas"):
            place = await caller.ok("POST", f"{path}/join", {"user": user})
        assert (place["role"], place["position"], place["waiting"]) == ("waiting", 1, 1)
        assert place["wait_ms"] > 0
        assert await caller.ok("GET", f"{path}/place?user=cas") == place
        moved = await caller.ok("POST", f"{path}/move", {"user": "ann", "move": 3})
        assert moved == {"answer": {"said": 1}}
        await caller.ok("POST", f"{path}/move", {"user": "ben", "move": 2})
        table = await caller.ok("GET", path)
        assert [seat["user"] for seat in table["seats"].values()] == ["ann", "cas"]
        refused = await caller("POST", f"{path}/move", {"user": "ann", "move": "five"})
        assert refused.verdict == (422, "bad_move")
        left = await caller.ok("POST", f"{path}/leave", {"user": "cas"})
        assert left["role"] == ""
        assert (await caller.ok("POST", f"{path}/watch", {"user": "cas"}))["role"] == "watching"
        assert (await caller.ok("POST", f"{path}/heartbeat", {"user": "cas"}))["user"] == "cas"
        await caller.ok("POST", f"{path}/pause")
        refused = await caller("POST", f"{path}/move", {"user": "ann", "move": 1})
        assert refused.verdict == (409, "table_paused")
        assert not (await caller.ok("POST", f"{path}/resume")).get("paused")
        assert (await caller.ok("POST", f"{path}/close"))["phase"] == "closed"
        refused = await caller("POST", f"{path}/join", {"user": "ann"})
        assert refused.verdict == (410, "table_closed")


@virtual
async def test_results_and_ladders() -> None:
    async with serving() as caller:
        await caller.ok(
            "POST", "/v1/tables", {"id": "t", "policy": {"kind": "ranked", "tiers": []}}
        )
        for user in ("ann", "ben"):
            await caller.ok("POST", "/v1/tables/t/join", {"user": user})
        ending = await caller.ok("POST", "/v1/tables/t/result", {"winners": ["ben"], "game": 1})
        assert ending["ratings"] == {"ann": 1_184, "ben": 1_216}
        again = await caller("POST", "/v1/tables/t/result", {"winners": ["ben"], "game": 1})
        assert again.verdict == (409, "other_game")
        ladder = await caller.ok("GET", "/v1/ladders/tables")
        assert [leader["user"] for leader in ladder["leaders"]] == ["ben", "ann"]
        ladder = await caller.ok("GET", "/v1/ladders/tables?limit=1&rating=1216&user=ben")
        assert [leader["user"] for leader in ladder["leaders"]] == ["ann"]
        one = await caller.ok("GET", "/v1/ladders/tables/ann")
        assert (one["rating"]["rating"], one["rating"]["games"]) == (1_184, 1)
        assert (await caller.ok("GET", "/v1/ladders/tables/zoe"))["rating"] is None
        refused = await caller("GET", "/v1/ladders/tables?limit=0")
        assert refused.verdict == (422, "bad_parameter")


@virtual
async def test_people_act_for_themselves_and_no_client_says_who_has_lost() -> None:
    auth, keys = keyed(ann="play:club-*", ben="play:club-*", host="table:club-*", zoe="send:*")
    async with serving(auth=auth) as caller:
        host, ann, ben, zoe = (
            Caller(caller.server, keys[name]) for name in ("host", "ann", "ben", "zoe")
        )
        policy = {"party_max": 2, "lanes": ["vip", "main"]}
        await host.ok("POST", "/v1/tables", {"id": "club-1", "policy": policy})
        assert (await ann("POST", "/v1/tables", {"id": "club-2"})).verdict == (403, "not_allowed")
        assert (await host("POST", "/v1/tables", {"id": "other"})).verdict == (403, "not_allowed")
        assert (await ann.ok("POST", "/v1/tables/club-1/join"))["user"] == "key:ann"
        assert (await ben.ok("POST", "/v1/tables/club-1/join", {}))["user"] == "key:ben"
        for body in ({"user": "key:ben"}, {"user": "ann"}):
            for name in ("join", "leave", "ready", "watch"):
                answer = await ann("POST", f"/v1/tables/club-1/{name}", body)
                assert answer.verdict == (403, "not_allowed")
        for body in ({"party": ["dan"]}, {"lane": "vip"}):
            answer = await ann("POST", "/v1/tables/club-1/join", body)
            assert answer.verdict == (403, "not_allowed")
        assert (await ann.ok("POST", "/v1/tables/club-1/join", {"lane": "main"}))[
            "user"
        ] == "key:ann"
        eve = await host.ok("POST", "/v1/tables/club-1/join", {"user": "eve", "lane": "vip"})
        assert (eve["role"], eve["lane"]) == ("waiting", "vip")
        for name in ("result", "pause", "resume", "close"):
            answer = await ann("POST", f"/v1/tables/club-1/{name}", {})
            assert answer.verdict == (403, "not_allowed")
        for name in ("join", "move"):
            answer = await zoe("POST", f"/v1/tables/club-1/{name}", {})
            assert answer.verdict == (403, "not_allowed")
        assert (await zoe("GET", "/v1/tables/club-1")).verdict == (403, "not_allowed")
        assert await zoe.ok("GET", "/v1/tables") == {"tables": [], "next": None}
        assert (await host.ok("POST", "/v1/tables/club-1/result", {"game": 1}))["number"] == 1


@virtual
async def test_only_a_table_writes_the_room_that_shows_it() -> None:
    async with serving() as caller:
        await caller.ok("POST", "/v1/tables", {"id": "t"})
        await caller.ok("POST", "/v1/tables/t/join", {"user": "ann"})
        state = await caller.ok("GET", "/v1/rooms/table:t/snapshot")
        assert state["maps"]["seats"]["X"]["user"] == "ann"
        assert state["maps"]["table"]["state"]["phase"] == "waiting"
        op = {"op": "map.set", "map": "seats", "key": "X", "value": "me"}
        for method, path, body in (
            ("POST", "/v1/rooms/table:t/ops", {"ops": [op]}),
            ("DELETE", "/v1/rooms/table:t", None),
            ("POST", "/v1/rooms", {"id": "table:u"}),
        ):
            assert (await caller(method, path, body)).verdict == (403, "not_allowed")


@virtual
async def test_a_token_grants_a_lane_of_higher_priority() -> None:
    secret = "a secret of more than thirty-two bytes"
    auth = Auth(jwt_keys=[JwtKey("HS256", secret, "onceward")])
    async with serving(auth=auth) as caller:

        def member(user: str, **names: list[str]) -> Caller:
            return Caller(caller.server, tokens.sign(secret, user=user, **names))  # type: ignore[arg-type]

        host = member("host", table=["t", "a/t"])
        for id_ in ("t", "a/t"):
            body = {"id": id_, "policy": {"lanes": ["vip", "fast", "main"]}}
            await host.ok("POST", "/v1/tables", body)
        for user in ("ann", "ben", "cas"):
            await member(user, play=["t"]).ok("POST", "/v1/tables/t/join")
        path, vip = "/v1/tables/t/join", {"lane": "vip"}
        for names in (
            {"play": ["t"]},
            {"play": ["t"], "lane": ["t/fast"]},
            {"play": ["t"], "lane": ["t", "vip", "t/*", "*/vip", "a/t/vip", "t/vip/vip"]},
            {"lane": ["t/vip"]},
            {"play": ["t"], "table": ["a/t"], "lane": ["t/main"]},
        ):
            assert (await member("dan", **names)("POST", path, vip)).verdict == (403, "not_allowed")
        dan = member("dan", play=["t"], lane=["t/vip"])
        assert (await dan("POST", path, {"lane": "fast"})).verdict == (403, "not_allowed")
        assert (await dan("POST", path, {**vip, "user": "eve"})).verdict == (403, "not_allowed")
        place = await dan.ok("POST", path, vip)
        assert (place["role"], place["lane"], place.get("ahead", 0)) == ("waiting", "vip", 0)
        assert (await host.ok("GET", "/v1/tables/t/place?user=cas"))["ahead"] == 1
        # Without naming it, one is in the last lane like others.
        eve = await member("eve", play=["t"], lane=["t/vip"]).ok("POST", path)
        assert (eve["lane"], eve["position"]) == ("main", 2)
        await host.ok("POST", "/v1/tables/t/result", {"winners": ["ann"], "game": 1})
        assert (await host.ok("GET", "/v1/tables/t"))["seats"]["O"]["user"] == "dan"


@virtual
async def test_a_waitlist_is_listed_in_pages_with_opaque_cursors() -> None:
    async with serving() as caller:
        for id_ in ("t", "u"):
            await caller.ok("POST", "/v1/tables", {"id": id_})
            for number in range(7):
                await caller.ok("POST", f"/v1/tables/{id_}/join", {"user": f"u{number}"})
        await caller.ok("POST", "/v1/tables/t/leave", {"user": "u4"})
        first = await caller.ok("GET", "/v1/tables/t/waitlist?limit=2")
        assert [one["users"] for one in first["waitlist"]] == [["u2"], ["u3"]]
        assert "main" not in first["next"]
        # Whoever leaves meanwhile moves nobody to another page.
        await caller.ok("POST", "/v1/tables/t/leave", {"user": "u2"})
        rest = await caller.ok("GET", f"/v1/tables/t/waitlist?after={first['next']}")
        told = [(one["users"], one["position"], one["lane"]) for one in rest["waitlist"]]
        assert told == [(["u5"], 2, "main"), (["u6"], 3, "main")]
        assert rest["next"] is None
        for after in ("main#1", first["next"][:-2], "%F0"):
            refused = await caller("GET", f"/v1/tables/t/waitlist?after={after}")
            assert refused.verdict == (422, "bad_parameter")
        assert (await caller("GET", "/v1/tables/none/waitlist")).verdict == (404, "no_such_table")


@virtual
async def test_a_table_can_hide_the_names_of_those_who_wait() -> None:
    auth, keys = keyed(ann="play:t", host="table:t", zoe="play:other")
    async with serving(auth=auth) as caller:
        host, ann, zoe = (Caller(caller.server, keys[name]) for name in ("host", "ann", "zoe"))
        await host.ok("POST", "/v1/tables", {"id": "t", "policy": {"waitlist_names": False}})
        for user in ("ben", "cas", "dan", "eve"):
            await host.ok("POST", "/v1/tables/t/join", {"user": user})
        seen = (await ann.ok("GET", "/v1/tables/t/waitlist"))["waitlist"]
        assert [one["position"] for one in seen] == [1, 2]
        assert "dan" not in str(seen)
        known = (await host.ok("GET", "/v1/tables/t/waitlist"))["waitlist"]
        assert [one["users"] for one in known] == [["dan"], ["eve"]]
        state = await ann.ok("GET", "/v1/rooms/table:t/snapshot")
        shown = state["maps"]["waitlist"]
        assert sorted(one["number"] for one in shown.values()) == [0, 1]
        assert "dan" not in str(state)
        assert "eve" not in str(state)
        assert (await zoe("GET", "/v1/tables/t/waitlist")).verdict == (403, "not_allowed")


@virtual
async def test_an_empty_seat_has_one_form_in_answers_and_in_the_live_view() -> None:
    async with serving() as caller:
        await caller.ok("POST", "/v1/tables", {"id": "t"})
        for does, empty in (("join", ["O"]), ("leave", ["X", "O"])):
            await caller.ok("POST", f"/v1/tables/t/{does}", {"user": "ann"})
            table = (await caller.ok("GET", "/v1/tables/t"))["seats"]
            room = (await caller.ok("GET", "/v1/rooms/table:t/snapshot"))["maps"]["seats"]
            assert [marker for marker, seat in table.items() if seat is None] == empty
            assert table == room


@virtual
async def test_tables_are_listed_in_pages() -> None:
    async with serving() as caller:
        for number in range(5):
            await caller.ok("POST", "/v1/tables", {"id": f"t{number}"})
        first = await caller.ok("GET", "/v1/tables?limit=3")
        assert [one["id"] for one in first["tables"]] == ["t0", "t1", "t2"]
        rest = await caller.ok("GET", f"/v1/tables?limit=3&after={first['next']}")
        assert ([one["id"] for one in rest["tables"]], rest["next"]) == (["t3", "t4"], None)
        named = await caller.ok("GET", "/v1/tables?prefix=t4")
        assert len(named["tables"]) == 1
        assert (await caller.ok("POST", "/v1/tables", {}))["id"]
        await caller.ok("POST", "/v1/tables/t3/close")
        closed = await caller.ok("GET", "/v1/tables?phase=closed&game=")
        assert [one["id"] for one in closed["tables"]] == ["t3"]
        assert (await caller.ok("GET", "/v1/tables?game=chess"))["tables"] == []
        refused = await caller("GET", "/v1/tables?phase=over")
        assert refused.verdict == (422, "bad_parameter")


@pytest.mark.parametrize(
    ("method", "path", "body", "verdict"),
    [
        ("POST", "/v1/tables", {"id": "t"}, (409, "table_exists")),
        ("POST", "/v1/tables", {"id": "x" * 65}, (422, "bad_name")),
        ("POST", "/v1/tables", {"id": 7}, (422, "wrong_type")),
        ("POST", "/v1/tables", {"policy": {"seats": []}}, (422, "bad_policy")),
        ("POST", "/v1/tables", {"policy": {"none": 1}}, (422, "bad_policy")),
        ("POST", "/v1/tables", {"game": "chess"}, (409, "no_game")),
        ("POST", "/v1/tables", {"meta": {"a": "x" * 20_000}}, (422, "value_too_large")),
        ("GET", "/v1/tables/none", None, (404, "no_such_table")),
        ("GET", "/v1/tables?limit=0", None, (422, "bad_parameter")),
        ("GET", "/v1/tables?limit=many", None, (422, "bad_parameter")),
        ("GET", "/v1/tables?sort=up", None, (422, "bad_parameter")),
        ("POST", "/v1/tables/none/join", {}, (404, "no_such_table")),
        ("POST", "/v1/tables/t/join", {"lane": "vip"}, (400, "bad_request")),
        ("POST", "/v1/tables/t/join", {"user": "x" * 329}, (422, "bad_name")),
        ("POST", "/v1/tables/t/join", {"nobody": 1}, (422, "unknown_member")),
        ("POST", "/v1/tables/t/ready", {}, (409, "not_seated")),
        ("POST", "/v1/tables/t/move", {"move": 1}, (409, "not_seated")),
        ("POST", "/v1/tables/t/result", {}, (409, "no_game")),
        ("POST", "/v1/tables/t/result", {"game": -1}, (422, "wrong_type")),
        ("GET", "/v1/tables/t/place?user=%00", None, (422, "bad_name")),
    ],
)
@virtual
async def test_what_cannot_be_meant_is_refused(
    method: str, path: str, body: Any, verdict: tuple[int, str]
) -> None:
    async with serving() as caller:
        await caller.ok("POST", "/v1/tables", {"id": "t"})
        before = await caller.ok("GET", "/v1/tables/t")
        answer = await caller(method, path, body)
        assert answer.code == verdict[1]
        assert answer.status in (verdict[0], 413)
        assert await caller.ok("GET", "/v1/tables/t") == before
