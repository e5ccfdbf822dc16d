"""Commands for timers, endpoints, rooms, tables, sessions and keys, against a real server."""

import json
from urllib.request import Request, urlopen

import pytest

from tests.cli.commands import KEY, Command
from tests.server_process import ServerProcess

pytestmark = pytest.mark.timeout(300)  # for many processes on a busy machine

URL = "https://example.invalid/hook"
SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"
OTHER = "whsec_YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4"
SET = '{"op": "map.set", "map": "m", "key": "k", "value": 1}'


def test_a_timer_is_created_shown_moved_and_cancelled(command: Command) -> None:
    asked = ("timers", "create", "--id", "one", "--url", URL, "--at", "2033-05-18T03:33:20Z")
    assert command.said(*asked) == "Created timer one (due 2033-05-18 03:33:20Z)\n"
    assert command.said(*asked) == "Timer exists already: one (due 2033-05-18 03:33:20Z)\n"
    shown = command.said("timers", "get", "one")
    assert "active" in shown
    assert f"call {URL}" in shown
    assert "2033-05-18 03:33:21Z" in command.said("timers", "move", "one", "--at", "2000000001000")
    assert "cancelled" in command.said("timers", "cancel", "one")
    line, exit_code = command.refused("timers", "move", "one")
    assert (line, exit_code) == (
        "onceward: give the new time of the timer as `at`, or as `delay_ms` from now [bad_timer]",
        2,
    )
    line, code = command.refused("timers", "move", "one", "--delay-s", "1")
    assert "[already_ended]" in line
    assert code == 2


def test_all_options_of_a_timer_arrive(command: Command) -> None:
    found = command.json(
        *("timers", "create", "--queue", "q", "--cron", "0 0 9 * * MON", "--zone", "Europe/Berlin"),
        *("--catch-up", "last", "--body", '{"n": 1}', "--order-key", "o", "--limit-key", "l"),
        *("--priority", "1", "--attempts-max", "3", "--delay-s", "3600", "--key", "k"),
    )
    assert (found["queue"], found["cron"], found["zone"]) == ("q", "0 0 9 * * MON", "Europe/Berlin")
    assert (found["catch_up"], found["body"], found["order_key"]) == ("last", {"n": 1}, "o")
    assert (found["limit_key"], found["priority"], found["attempts_max"]) == ("l", 1, 3)
    found = command.json(
        *("timers", "create", "--url", URL, "--every-s", "60", "--append-id"),
        *("--header", "X-A: 1", "--header", "X-B:2", "--retry-pauses-s", "5,0.5"),
        *("--retry-attempts-max", "7", "--retry-timeout-s", "2"),
    )
    assert found["retry"] == {"pauses_ms": [5_000, 500], "attempts_max": 7, "timeout_ms": 2_000}
    assert (found["every_ms"], found["append_id"]) == (60_000, True)
    assert found["headers"] == {"X-A": "1", "X-B": "2"}
    shown = command.said("timers", "get", found["id"])
    assert "every 1 min" in shown
    assert "next" in shown


def test_timers_are_listed(command: Command) -> None:
    for number in range(3):
        at = ("--at", "2033-05-18T03:33:20Z")
        command.said("timers", "create", "--id", f"listed-{number}", "--queue", "q", *at)
    command.said("timers", "cancel", "listed-1")
    text = command.said("timers", "list", "--prefix", "listed-")
    assert [line.split("\t")[:4] for line in text.splitlines()] == [
        ["ID", "CALLER", "STATE", "DUE"],
        ["listed-0", "", "active", "2033-05-18 03:33:20Z"],
        ["listed-1", "", "cancelled", "2033-05-18 03:33:20Z"],
        ["listed-2", "", "active", "2033-05-18 03:33:20Z"],
    ]
    found = command.json("timers", "list", "--prefix", "listed-", "--state", "active")
    assert [timer["id"] for timer in found["timers"]] == ["listed-0", "listed-2"]
    _, some = command.listed("timers", "list", "--prefix", "listed-", "--limit", "2")
    assert "There are more. Use --limit, or continue with --after " in some
    _, nobody = command.listed("timers", "list", "--prefix", "nobody")
    assert nobody.startswith("No timers with prefix 'nobody'. Use --app for ")
    assert command.said("timers", "list-all").count("listed-") == 3


def test_ids_are_not_cut(command: Command) -> None:
    long = "reminder-" * 20
    every = ("--url", URL, "--every-s", "3600")
    generated = command.json("timers", "create", *every)["id"]
    shown = command.on_terminal("timers", "list", "--prefix", generated)[0].splitlines()
    assert any(line.startswith(f"{generated}  active  2") for line in shown)
    command.said("timers", "create", "--id", long, *every)
    shown = command.on_terminal("timers", "list")[0].splitlines()
    assert {generated, long} <= set(shown)
    assert any(line.split() == f"action call {URL} every 1 h".split() for line in shown)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("get", "nobody"), "[no_such_timer]"),
        (("create", "--url", URL), "[bad_timer]"),
        (("create", "--url", URL, "--at", "soon"), "--at is a time as in"),
        (("create", "--url", URL, "--delay-s", "1", "--body", "{"), "[not_json]"),
        (
            ("create", "--url", URL, "--delay-s", "1", "--header", "X-A"),
            "--header must be NAME:VALUE",
        ),
        (("create", "--url", "nowhere", "--delay-s", "1"), "[bad_url]"),
        (("list", "--state", "lost"), "unknown --state 'lost'; use one of active, "),
        (("move", "nobody", "--delay-s", "1"), "[no_such_timer]"),
        (("get", "nobody", "--app"), "[no_such_timer]"),
    ],
    ids=" ".join,
)
def test_an_error_of_timers_is_one_line(
    command: Command, arguments: tuple[str, ...], says: str
) -> None:
    line, code = command.refused("timers", *arguments)
    assert says in line
    assert code == 2


def test_an_endpoint_is_created_shown_changed_and_deleted(command: Command) -> None:
    created = command.said(
        *("endpoints", "create", URL, "--id", "shop", "--secret", SECRET),
        *("--description", "The shop", "--header", "X-A: 1"),
    )
    assert SECRET in created
    shown = command.said("endpoints", "get", "shop")
    assert SECRET not in shown
    assert ("The shop" in shown, "X-A: 1" in shown, "ok" in shown.split()) == (True, True, True)
    assert SECRET in command.said("endpoints", "get", "shop", "--secret")
    update = ("endpoints", "update", "shop")
    assert "disabled" in command.said(*update, "--disabled")
    assert command.json(*update, "--no-disabled")["disabled"] is False
    changed = command.json(*update, "--url", URL + "2")
    assert (changed["url"], changed["description"]) == (URL + "2", "The shop")
    assert command.json(*update, "--retry-pauses-s", "60")["retry"]["pauses_ms"] == [60_000]
    assert "retry" not in command.json(*update, "--no-retry")
    assert "shop" in command.said("endpoints", "list")
    assert [one["id"] for one in command.json("endpoints", "list")["endpoints"]] == ["shop"]
    assert command.json("endpoints", "delete", "shop") == {"id": "shop"}
    assert command.listed("endpoints", "list") == ("", "No endpoints.\n")


def test_a_secret_is_rotated(command: Command) -> None:
    command.said("endpoints", "create", URL, "--id", "turning", "--secret", SECRET)
    text = command.said("endpoints", "rotate", "turning", "--secret", OTHER)
    assert OTHER in text
    assert f"{SECRET} until " in text
    found = command.json("endpoints", "rotate", "turning", "--overlap-s", "0")
    assert len(found["secrets"]) == 1
    command.said("endpoints", "delete", "turning")


def test_a_test_call_is_sent(command: Command) -> None:
    command.said("endpoints", "create", URL, "--id", "tested", "--secret", SECRET)
    timer = command.json("endpoints", "test", "tested")
    assert (timer["endpoint"], timer["attempts_max"]) == ("tested", 1)
    assert "endpoint tested" in command.said("timers", "get", timer["id"])
    command.said("endpoints", "delete", "tested")


def test_a_room_is_created_changed_and_deleted(command: Command) -> None:
    created = command.said("rooms", "create", "--id", "one", "--meta", '{"team": "a"}')
    assert "team: a" in created
    line, code = command.refused("rooms", "create", "--id", "one")
    assert "[room_exists]" in line
    assert code == 2
    assert command.json("rooms", "apply", "one", SET) == {"seq": 1, "duplicate": False}
    assert command.json("rooms", "snapshot", "one")["maps"] == {"m": {"k": 1}}
    assert command.json("rooms", "snapshot", "one", "--at", "0")["maps"] == {}
    history = command.said("rooms", "history", "one")
    assert '"map.set"' in history
    assert "operator" in history
    assert "operator" in command.said("rooms", "members", "one")
    assert command.json("rooms", "update", "one", "--capacity", "7")["capacity"] == 7
    assert command.json("rooms", "get-map", "one", "m")["values"] == {"k": 1}
    assert "one" in command.said("rooms", "delete", "one")
    line, code = command.refused("rooms", "get", "one")
    assert "[no_such_room]" in line
    assert command.refused("rooms", "apply", "one", "{")[0].endswith("[not_json]")


def test_rooms_are_listed(command: Command) -> None:
    for number in range(3):
        meta = f'{{"odd": {"true" if number % 2 else "false"}}}'
        command.said("rooms", "create", "--id", f"listed-{number}", "--meta", meta)
    text = command.said("rooms", "list", "--prefix", "listed-")
    assert [line.split()[0] for line in text.splitlines()] == [
        "ID",
        *[f"listed-{n}" for n in range(3)],
    ]
    found = command.json("rooms", "list", "--meta", '{"odd": true}')
    assert [room["id"] for room in found["rooms"]] == ["listed-1"]
    _, few = command.listed("rooms", "list", "--prefix", "listed-", "--limit", "2")
    assert "There are more. Use --limit, or continue with --after " in few
    assert command.listed("rooms", "list", "--prefix", "x") == ("", "No rooms with prefix 'x'.\n")


def test_a_table_is_created_joined_and_closed(command: Command) -> None:
    policy = ("--policy-kind", "ranked", "--policy-tiers", "", "--policy-turn-s", "90")
    created = command.json("tables", "create", "--id", "t1", *policy)
    assert (created["id"], created["policy"]["turn_ms"]) == ("t1", 90_000)
    assert command.said("tables", "join", "t1", "--user", "ann") == "ann plays at t1 as X\n"
    command.said("tables", "join", "t1", "--user", "ben")
    told = command.said("tables", "join", "t1", "--user", "cas")
    assert "cas is number 1 in the waitlist of t1" in told
    ended = command.said("tables", "result", "t1", "--winner", "ann")
    assert ended.splitlines()[0] == "Ended game 1: won by ann"
    assert "X: ann, O: cas" in command.said("tables", "get", "t1")
    command.said("tables", "join", "t1", "--user", "dan")
    told = command.said("tables", "waitlist", "t1")
    assert [line.split()[:2] for line in told.splitlines()[1:]] == [["1", "ben"], ["2", "dan"]]
    assert "There are more." in command.listed("tables", "waitlist", "t1", "--limit", "1")[1]
    found = command.json("tables", "waitlist", "t1")["waitlist"]
    assert [one["users"] for one in found] == [["ben"], ["dan"]]
    command.said("tables", "leave", "t1", "--user", "dan")
    assert command.json("tables", "place", "t1", "--user", "ben")["position"] == 1
    assert command.said("tables", "leave", "t1", "--user", "ben") == "ben is not at t1\n"
    assert command.said("tables", "leaders", "tables").split()[5:7] == ["ann", "1216"]
    assert "paused" in command.said("tables", "pause", "t1")
    assert "playing" in command.said("tables", "resume", "t1")
    assert "t1" in command.said("tables", "list", "--prefix", "t1")
    assert command.listed("tables", "waitlist", "t1") == ("", "No waiters in 't1'.\n")
    assert command.json("tables", "get", "t1")["seats"]["O"]["user"] == "cas"
    assert "closed" in command.said("tables", "close", "t1")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("create", "--policy-seat", "none"), "bad_policy"),
        (("create", "--policy-kind", "fast"), "wrong_type"),
        (("create", "--policy-turn-s", "soon"), "wrong_type"),
        (("get", "none"), "no_such_table"),
        (("list", "--limit", "0"), "wrong_type"),
    ],
)
def test_bad_input_for_tables_is_rejected(
    command: Command, arguments: tuple[str, ...], code: str
) -> None:
    line, _ = command.refused("tables", *arguments)
    assert f"[{code}]" in line


def sign_in(server: ServerProcess) -> str:
    """Sign in as a browser does; returns the cookie."""
    headers = {"content-type": "application/json", "user-agent": "a browser"}
    body = json.dumps({"token": KEY}).encode()
    with urlopen(Request(f"{server.url}/v1/session", body, headers)) as answer:
        return str(answer.headers["set-cookie"])


def test_sessions_are_listed_and_revoked(command: Command, server: ServerProcess) -> None:
    for _ in range(3):
        sign_in(server)
    listed = command.json("sessions", "list")["sessions"]
    assert [one["caller"] for one in listed] == ["key:operator"] * 3
    shown = command.said("sessions", "list", "--everyone")
    assert ("a browser" in shown, listed[0]["id"] in shown) == (True, True)
    assert command.said("sessions", "revoke", listed[0]["id"]).split() == ["sessions", "1"]
    line, _ = command.refused("sessions", "revoke", listed[0]["id"])
    assert line.endswith("[no_such_session]")
    revoked = command.json("sessions", "revoke-all", "--caller", "key:operator")
    assert revoked == {"sessions": 2}


def test_keys_are_created_and_deleted(command: Command) -> None:
    shown = command.said("keys", "create", "billing", "send:invoices.*", "lock:billing")
    assert "send:invoices.*, lock:billing" in shown
    assert "Store the key now: it is shown once." in shown
    [found] = command.json("keys", "list")["keys"]
    assert found["name"] == "billing"
    assert command.json("keys", "delete", found["id"]) == {"id": found["id"]}
    assert command.listed("keys", "list") == ("", "No keys.\n")
    assert "key:billing" in command.said("callers", "suspended")
    assert command.json("callers", "resume", "key:billing")["caller"] == "key:billing"
    assert command.listed("callers", "suspended") == ("", "No suspended callers.\n")


def test_the_server_is_shown(command: Command) -> None:
    assert command.said("server", "clock").endswith("Z\n")
    assert "version" in command.said("server", "overview")
    assert "drain_s" in command.said("server", "settings")
    assert "every" in command.said("server", "activity")
