"""The drop-in for `@roomservice/browser` does what was documented for it, and a page that was
written for that runs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import browsing
from tests.server_process import ServerProcess

pytestmark = pytest.mark.timeout(180)

EXAMPLE = Path(__file__).parents[2] / "examples" / "todo" / "todo.py"
MODULE = f"import runpy\napp = runpy.run_path({str(EXAMPLE)!r})['app']\n"

SETUP = """
const { RoomService, default: Default } = await import("/roomservice.js");
// What a site's own auth gives; in dev mode a token is a name.
const let_in = (user, id) => async ({ room }) => ({
  token: `dev:${user}`, user, resources: [{ object: "room", id: id ?? room }],
});
const enter = (user, room) => new RoomService({ auth: let_in(user), ctx: {} }).room(room);
const thrown = (does) => {
  try { does(); } catch (error) { return `${error.name}: ${error.message}`; }
};
const rejected = (promise) => promise.then(() => null, (error) => error.message);
// Waits until a subscription of `room` to `object` is told what `wanted` says.
const until = (room, object, wanted) => new Promise((resolve) => {
  const listening = room.subscribe(object, (value, from) => {
    if (wanted(value)) { room.unsubscribe(listening); resolve([value, from]); }
  });
});
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("todo")
    (folder / "pages.py").write_text(MODULE)
    with ServerProcess(folder, "--app", "pages:app") as server:
        yield server


@pytest.fixture(scope="module")
def page(server: ServerProcess) -> Iterator[Any]:
    # Some tests let auth fail, and subscribers.
    with browsing("status of (401|500)|Infinite loop") as page:
        page.route("**/favicon.ico", lambda route: route.fulfill(status=204))
        page.goto(f"{server.url}/healthz")
        yield page


def run(page: Any, script: str) -> Any:
    return page.evaluate(f"async () => {{ {SETUP} {script} }}")


def test_maps_lists_and_presences_are_shared_as_they_were(page: Any) -> None:
    said = run(
        page,
        """
        const [ann, ben] = await Promise.all([enter("ann", "home"), enter("ben", "home")]);
        const map = ann.map("settings"), list = ann.list("todos"), here = ann.presence("here");
        const heard = Promise.all([
          until(ben, ben.map("settings"), (value) => value.count === 2),
          until(ben, ben.list("todos"), (value) => value.length === 4),
          until(ben, ben.presence("here"), (value) => value.ann?.x === 2),
        ]);
        map.set("title", "hi").set("count", 2);
        list.push("a", "b").insertAt(0, "front").insertAfter(0, "second");
        here.set({ x: 1 });
        const all = here.set({ x: 2 }, 30);
        const before = await heard;
        map.delete("title");
        list.set(1, { text: "SECOND" }).delete(3);
        await until(ben, ben.list("todos"), (value) => value.length === 3);
        return {
          before, all, me: [ann.me, ben.me],
          mine: [here.getMine(), ben.presence("here").getMine() ?? null],
          map: [map.keys, map.get("count"), map.get("title") ?? null],
          whole: ben.map("settings").toObject(),
          list: [ben.list("todos").toArray(), list.map((value, index) => [value, index])],
          keys: list.map((value, index, key) => key).every((key) => typeof key === "string"),
          same: [ann.map("settings") === map, map.set("a", 1) === map, list.push("z") === list],
          Default: Default === RoomService,
        };
        """,
    )
    assert said == {
        "before": [
            [{"title": "hi", "count": 2}, "ann"],
            [["front", "second", "a", "b"], "ann"],
            [{"ann": {"x": 2}}, "ann"],
        ],
        "all": {"ann": {"x": 2}},
        "me": ["ann", "ben"],
        "mine": [{"x": 2}, None],
        "map": [["count"], 2, None],
        "whole": {"count": 2},
        "list": [
            ["front", {"text": "SECOND"}, "a"],
            [["front", 0], [{"text": "SECOND"}, 1], ["a", 2]],
        ],
        "keys": True,
        "same": [True, False, True],
        "Default": True,
    }


def test_an_insertion_past_the_end_is_a_range_error(page: Any) -> None:
    said = run(
        page,
        """
        const list = (await enter("ann", "range")).list("todos");
        list.push("a");
        const errors = [() => list.insertAt(2, "x"), () => list.insertAfter(1, "x"),
          () => list.insertAt(-1, "x"), () => list.insertAt(0.5, "x"), () => list.set(1, "x")];
        return [errors.map((does) => thrown(does)?.split(":")[0]), list.insertAt(1, "b").toArray()];
        """,
    )
    assert said == [["RangeError"] * 5, ["a", "b"]]


def test_to_delete_a_missing_item_warns_and_changes_nothing(page: Any) -> None:
    warned: list[str] = []
    page.on("console", lambda said: said.type == "warning" and warned.append(said.text))
    said = run(
        page,
        """
        const room = await enter("ann", "missing");
        const list = room.list("todos");
        list.push("a");
        let told = 0;
        room.subscribe(list, () => told++);
        const after = [list.delete(1).toArray(), list.delete(-1).toArray()];
        room.map("settings").delete("nothing");
        return [after, told];
        """,
    )
    assert said == [[["a"], ["a"]], 0]
    assert len(warned) == 2
    assert all("nothing was deleted" in text for text in warned)


def test_undefined_deletes(page: Any) -> None:
    said = run(
        page,
        """
        const room = await enter("ann", "undefined");
        room.map("m").set("a", 1).set("b", null).set("a", undefined);
        room.list("l").push("x", "y").set(0, undefined);
        return [room.map("m").toObject(), room.map("m").keys, room.list("l").toArray()];
        """,
    )
    assert said == [{"b": None}, ["b"], ["y"]]


def test_a_change_inside_a_subscription_to_the_same_object_is_refused(page: Any) -> None:
    said = run(
        page,
        """
        const [ann, ben] = await Promise.all([enter("ann", "loop"), enter("ben", "loop")]);
        const map = ann.map("m"), other = ann.map("other"), list = ann.list("l");
        const inside = [];
        ann.subscribe(map, () => inside.push(thrown(() => map.set("again", 1))));
        ann.subscribe(map, (value) => other.set("seen", value.name)); // another object may be
        map.set("name", "joe");
        const first = [inside.splice(0), map.toObject(), other.toObject()];
        // Also when it was another who has changed it.
        const heard = until(ann, map, (value) => value.name === "ben");
        ben.map("m").set("name", "ben");
        await heard;
        const second = [inside.splice(0), map.toObject()];
        // What a subscriber throws comes to who has made the change, and stops nobody.
        ann.subscribe(list, () => list.push("again"));
        ann.subscribe(list, (value) => inside.push(value.length));
        return [...first, ...second, thrown(() => list.push("a")), inside, list.toArray()];
        """,
    )
    why = "this changes an object within a function that is subscribed to it"
    refused = f"Error: Infinite loop: {why}"
    assert said == [
        [refused],
        {"name": "joe"},
        {"seen": "joe"},
        [refused],
        {"name": "ben"},
        refused,
        [1],
        ["a"],
    ]


def test_a_subscription_hears_ones_own_changes_and_ends(page: Any) -> None:
    said = run(
        page,
        """
        const room = await enter("ann", "subscriptions");
        const other = await enter("ann", "elsewhere");
        const map = room.map("m"), told = [];
        const hook = (value, from) => told.push([value, from]);
        const first = room.subscribe(map, hook);
        const second = room.subscribe(map.set("a", 1), hook);
        map.set("a", 1);
        room.unsubscribe(first);
        map.set("a", 2);
        room.unsubscribe(second);
        room.unsubscribe(second);
        map.set("a", 3);
        const wrong = [() => room.subscribe(other.map("m"), hook), () => room.subscribe({}, hook),
          () => room.subscribe(map), () => map.set("a", () => 1)].map((does) => thrown(does));
        return [told, wrong.map((error) => error.split(":")[0]), map.get("a")];
        """,
    )
    told = [[{"a": value}, "ann"] for value in (1, 1, 1, 2)]
    assert said == [told, ["TypeError", "TypeError", "TypeError", "OncewardError"], 3]


def test_a_presence_ends_after_its_time(page: Any) -> None:
    said = run(
        page,
        """
        const [ann, ben] = await Promise.all([enter("ann", "times"), enter("ben", "times")]);
        const here = ben.presence("here");
        const came = until(ben, here, (value) => "ann" in value);
        const gone = until(ann, ann.presence("here"), (value) => !("ann" in value));
        ann.presence("here").set("short", 0.2);
        ben.presence("long").set("day", 10 ** 9);
        const long = ben.presence("long").getMine();
        return [await came, (await gone)[0], ann.presence("here").getAll(), long];
        """,
    )
    assert said == [[{"ann": "short"}, "ann"], {}, {}, "day"]


def test_auth_is_asked_as_it_was_and_what_it_lacks_is_told(page: Any) -> None:
    asked: list[Any] = []
    answers = [
        (401, "no"),
        (500, "{}"),
        (200, "no JSON"),
        (200, '{"token": "dev:ann", "resources": []}'),
        (200, '{"token": "dev:ann", "user": "ben", "resources": []}'),
        (200, '{"token": "dev:ann", "user": "ann", "resources": [{"object": "room", "id": "x1"}]}'),
    ]

    def answer(route: Any) -> None:
        asked.append(route.request.post_data_json)
        status, body = answers[len(asked) - 1]
        route.fulfill(status=status, body=body)

    page.route("**/my/auth", answer)
    said = run(
        page,
        """
        const service = new RoomService({ auth: "/my/auth" });
        const errors = [];
        for (let n = 0; n < 5; n++) errors.push(await rejected(service.room("named")));
        const [room, again] = await Promise.all([service.room("named"), service.room("named")]);
        const later = await service.room("named");
        return [errors, room.onceward.id, room.me, room === again && room === later,
          thrown(() => new RoomService({}))];
        """,
    )
    assert asked == [
        {
            "resources": [
                {
                    "object": "document",
                    "reference": "default",
                    "permission": "read_write",
                    "room": "named",
                },
                {"object": "room", "reference": "named", "permission": "join"},
            ]
        }
    ] * len(answers)
    errors, *rest = said
    assert [error.partition(" at ")[0] for error in errors[:2]] == ["auth", "auth"]
    assert "rejects this user" in errors[0]
    assert "responded with 500" in errors[1]
    assert errors[2:4] == ["auth must return { token, user, resources }"] * 2
    assert errors[4] == "auth returned the user ben, but its token is for ann"
    assert rest[:3] == ["x1", "ann", True]
    assert rest[3].startswith("TypeError: auth must be")


def test_a_page_that_was_written_for_room_service_runs(page: Any, server: ServerProcess) -> None:
    wrong: list[str] = []
    guests = []
    for _ in range(2):
        context = page.context.browser.new_context()
        guest = context.new_page()
        guest.set_default_timeout(30_000)
        guest.on("pageerror", lambda error: wrong.append(str(error)))
        guest.goto(f"{server.url}/todo")
        guests.append(guest)
    ann, ben = guests
    ann.locator("#people", has_text="Also here: guest-").wait_for()
    ann.locator("#text").fill("milk")
    ben.locator("#people", has_text="is typing").wait_for()
    ann.get_by_role("button", name="Add").click()
    ben.get_by_label("milk is done").click()
    ann.locator("#todos .done", has_text="milk").wait_for()
    ben.locator("#text").fill("bread")
    ben.get_by_role("button", name="Add").click()
    ann.locator("li", has_text="bread").wait_for()
    ann.locator("#title").fill("Shopping")
    ben.wait_for_function("() => document.querySelector('#title').value === 'Shopping'")
    ben.locator("li", has_text="milk").get_by_role("button", name="Delete").click()
    ann.locator("li", has_text="milk").wait_for(state="detached")
    assert ann.locator("#todos span").all_text_contents() == ["bread"]

    # Who is not known is not let in, and what is no request is refused.
    address, json = f"{server.url}/todo/auth", {"content-type": "application/json"}
    assert page.request.post(address, data="{}", headers=json).status == 401
    for body, status in (("no JSON", 400), ('{"resources": 1}', 422), ("{}", 200)):
        assert ann.request.post(address, data=body.encode(), headers=json).status == status
    for room, status in (("todo", 200), ("vault", 403), ("todo all", 403), ("*", 403)):
        asked = {"resources": [{"object": "room", "reference": room}]}
        assert ann.request.post(address, data=asked).status == status

    # All of it is there for who comes later.
    ann.reload()
    ann.locator("li", has_text="bread").wait_for()
    assert ann.locator("#title").input_value() == "Shopping"
    for guest in guests:
        guest.context.close()
    assert wrong == []
