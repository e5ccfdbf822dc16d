"""What connections ask for at tables: the same as over HTTP, answered in order."""

from onceward.api import OPERATIONS
from onceward.app import App
from onceward.tables.operations import FUNCTIONS
from tests.rooms.people import Badge, Person
from tests.schedule.cluster import virtual
from tests.work.apps import Apps


async def enter(app: App, name: str, *may: tuple[str, str]) -> Person:
    person = Person(app.hub, Badge(name, *may))
    person.ask("hello")
    await person.next("welcome")
    return person


@virtual
async def test_a_game_is_played_over_connections() -> None:
    async with Apps(shared=False).make() as app:
        host = await enter(app, "host")
        host.ask("act", n=1, do="create", body={"id": "t", "policy": {"kind": "speed"}})
        assert (await host.next("done"))["value"]["id"] == "t"
        ann, ben, cas = [
            await enter(app, name, ("play", "t"), ("read", "table:t"))
            for name in ("ann", "ben", "cas")
        ]
        for number, person in enumerate((ann, ben, cas)):
            person.ask("act", n=number, do="join", table="t")
            place = await person.next("done")
            assert place["n"] == number
        assert (place["value"]["role"], place["value"]["position"]) == ("waiting", 1)
        await cas.join("table:t")
        host.ask("act", n=2, do="result", table="t", body={"winners": ["ben"], "game": 1})
        assert (await host.next("done"))["value"]["winners"] == ["ben"]
        changes = await cas.next("change")
        assert any(op["map"] == "seats" and op["value"]["user"] == "cas" for op in changes["ops"])
        cas.ask("act", n=9, do="get", table="t")
        assert (await cas.next("done"))["value"]["seats"]["X"]["user"] == "cas"


@virtual
async def test_a_lane_needs_a_grant_for_it_over_connections_too() -> None:
    async with Apps(shared=False).make() as app:
        await app.tables.create("t", policy={"lanes": ["vip", "main"]})
        for user in ("u1", "u2", "u3"):
            await app.tables.join("t", user)
        ann = await enter(app, "ann", ("play", "t"))
        ann.ask("act", n=1, do="join", table="t", body={"lane": "vip"})
        assert (await ann.next("failed"))["code"] == "not_allowed"
        ben = await enter(app, "ben", ("play", "t"), ("lane", "t/vip"))
        ben.ask("act", n=1, do="join", table="t", body={"lane": "vip"})
        assert (await ben.next("done"))["value"]["lane"] == "vip"
        ben.ask("act", n=2, do="waitlist", table="t")
        waitlist = (await ben.next("done"))["value"]["waitlist"]
        assert [one["users"] for one in waitlist] == [["ben"], ["u3"]]


@virtual
async def test_what_may_not_be_done_is_refused_and_the_connection_goes_on() -> None:
    async with Apps(shared=False).make() as app:
        await app.tables.create("t")
        ann = await enter(app, "ann", ("play", "t"))
        asked = [
            ({"do": "join", "table": "t", "body": {"user": "ben"}}, "not_allowed"),
            ({"do": "result", "table": "t"}, "not_allowed"),
            ({"do": "create", "body": {"id": "u"}}, "not_allowed"),
            ({"do": "join", "table": "u"}, "not_allowed"),
            ({"do": "fly", "table": "t"}, "bad_request"),
            ({"do": "ready", "table": "t"}, "not_seated"),
            ({"do": "move", "table": "t", "body": {"move": 1}}, "not_seated"),
            ({"do": "join", "table": "t", "body": {"none": 1}}, "unknown_member"),
            ({"do": "join", "table": "t", "body": {"lane": 7}}, "wrong_type"),
        ]
        for number, (members, _) in enumerate(asked):
            ann.ask("act", n=number, **members)  # all at once: answered one after another
        for number, (_, code) in enumerate(asked):
            failed = await ann.next("failed", "done")
            assert (failed["n"], failed.get("code")) == (number, code)
        ann.ask("act", n=-1, do="join", table="t")
        assert (await ann.next("failed"))["code"] == "wrong_type"
        ann.ask("act", n=20, do="join", table="t")
        ann.ask("ping")
        assert (await ann.next())["t"] == "done"
        assert (await ann.next())["t"] == "pong"
        ann.ask("join", room="table:t", client="c")
        await ann.next("joined")
        ops = [{"op": "map.set", "map": "seats", "key": "O", "value": {"user": "ann"}}]
        ann.ask("ops", room="table:t", n=1, ops=ops)
        assert (await ann.next("refused"))["code"] == "not_allowed"


@virtual
async def test_a_bug_in_a_game_ends_the_connection_and_nothing_else() -> None:
    app = Apps(shared=False).make()

    class Broken:
        async def begin(self, *_: object) -> None:
            raise ZeroDivisionError

        async def move(self, *_: object) -> None: ...

        async def ended(self, *_: object) -> None: ...

    app.referee("broken", Broken())  # type: ignore[arg-type]
    async with app:
        await app.tables.create("t", game="broken")
        await app.tables.join("t", "ann")
        ben = await enter(app, "ben")
        ben.ask("act", n=1, do="join", table="t")
        assert await ben.closed() == "internal"
        assert (await app.tables.get("t")).players == {"X": "ann"}


@virtual
async def test_ladders_are_parameters_of_the_body_over_connections() -> None:
    async with Apps(shared=False).make() as app:
        await app.tables.create("t", policy={"rated": True, "ladder": "club"})
        for user in ("ann", "ben"):
            await app.tables.join("t", user)
        await app.tables.result("t", ["ann"], game=1)
        ann = await enter(app, "ann")
        for number, (do, body) in enumerate(
            [
                ("leaders", {"ladder": "club", "limit": 1}),
                ("leaders", {}),
                ("rating", {"ladder": "club"}),
                ("rating", {"ladder": "club", "user": "ben"}),
            ]
        ):
            ann.ask("act", n=number, do=do, body=body)
        found = [(await ann.next("done"))["value"] for _ in range(4)]
        assert [leader["user"] for leader in found[0]["leaders"]] == ["ann"]
        assert found[1] == {"ladder": "tables", "leaders": []}
        assert [(one["user"], one["rating"]["rating"]) for one in found[2:]] == [
            ("ann", 1_216),
            ("ben", 1_184),
        ]
        for do, body, code in (
            ("rating", {"ladder": 7}, "wrong_type"),
            ("rating", {"limit": 1}, "unknown_member"),
            ("leaders", {"limit": 0}, "wrong_type"),
        ):
            ann.ask("act", n=9, do=do, body=body)
            assert (await ann.next("failed"))["code"] == code


def test_every_operation_of_tables_has_a_function() -> None:
    names = {name for name, operation in OPERATIONS.items() if operation.noun == "tables"}
    assert FUNCTIONS.keys() == names


def test_every_body_of_tables_may_be_empty() -> None:
    for name in FUNCTIONS:
        operation = OPERATIONS[name]
        assert operation.body is None or operation.body_optional
        for type_ in (operation.body, operation.query):
            if type_ is not None:
                type_()
