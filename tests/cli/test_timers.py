"""The commands about timers, against a real server."""

import pytest

from tests.cli.commands import Command

pytestmark = pytest.mark.timeout(300)  # for many processes on a busy machine

URL = "https://example.invalid/hook"


def test_a_timer_is_set_shown_moved_and_cancelled(command: Command) -> None:
    asked = ("timers", "set", "--id", "one", "--url", URL, "--at", "2033-05-18T03:33:20Z")
    assert command.said(*asked) == "one is set, and is due at 2033-05-18 03:33:20Z\n"
    assert command.said(*asked).startswith("one was set before")
    shown = command.said("timers", "show", "one")
    assert "active" in shown
    assert f"calls {URL}" in shown
    assert "2033-05-18 03:33:21Z" in command.said("timers", "move", "one", "--at", "2000000001000")
    assert "cancelled" in command.said("timers", "cancel", "one")
    line, code = command.refused("timers", "move", "one", "--delay-s", "1")
    assert "[already_ended]" in line
    assert code == 2


def test_all_options_of_a_timer_arrive(command: Command) -> None:
    found = command.json(
        *("timers", "set", "--queue", "q", "--cron", "0 0 9 * * MON", "--zone", "Europe/Berlin"),
        *("--catch-up", "last", "--body", '{"n": 1}', "--order-key", "o", "--limit-key", "l"),
        *("--priority", "1", "--attempts-max", "3", "--delay-s", "3600", "--key", "k"),
    )
    assert (found["queue"], found["cron"], found["zone"]) == ("q", "0 0 9 * * MON", "Europe/Berlin")
    assert (found["catch_up"], found["body"], found["order_key"]) == ("last", {"n": 1}, "o")
    assert (found["limit_key"], found["priority"], found["attempts_max"]) == ("l", 1, 3)
    found = command.json(
        *("timers", "set", "--url", URL, "--every-s", "60", "--append-id"),
        *("--header", "X-A: 1", "--header", "X-B:2", "--retry-pauses-s", "5,0.5"),
        *("--retry-attempts-max", "7", "--retry-timeout-s", "2"),
    )
    assert found["retry"] == {"pauses_ms": [5_000, 500], "attempts_max": 7, "timeout_ms": 2_000}
    assert (found["every_ms"], found["append_id"]) == (60_000, True)
    assert found["headers"] == {"X-A": "1", "X-B": "2"}
    shown = command.said("timers", "show", found["id"])
    assert "every 60 s" in shown
    assert "next" in shown


def test_timers_are_listed(command: Command) -> None:
    for number in range(3):
        at = ("--at", "2033-05-18T03:33:20Z")
        command.said("timers", "set", "--id", f"listed-{number}", "--queue", "q", *at)
    command.said("timers", "cancel", "listed-1")
    text = command.said("timers", "list", "--prefix", "listed-")
    assert [line.split()[:3] for line in text.splitlines() if "listed-" in line] == [
        ["listed-0", "active", "due"],
        ["listed-1", "cancelled", "due"],
        ["listed-2", "active", "due"],
    ]
    found = command.json("timers", "list", "--prefix", "listed-", "--state", "active")
    assert [timer["id"] for timer in found] == ["listed-0", "listed-2"]
    some = command.said("timers", "list", "--prefix", "listed-", "--limit", "2")
    assert "There are more than 2." in some
    others = " of your own; --app lists those of the application"
    nobody = ("timers", "list", "--prefix", "nobody")
    assert command.said(*nobody) == f"there are no such timers{others}\n"
    assert command.said(*nobody, "--app") == "there are no such timers\n"
    assert command.said("timers", "list", "--app") == "there are no timers\n"


def test_ids_are_broken_nowhere(command: Command) -> None:
    made_up = command.json("timers", "set", "--url", URL, "--every-s", "3600")["id"]
    long = "reminder-" * 20
    command.said("timers", "set", "--id", long, "--url", URL, "--delay-s", "3600")
    shown = command.on_terminal("timers", "list")[0].splitlines()
    for id_ in (made_up, long):
        [line] = [line for line in shown if line.startswith(id_)]
        assert line.startswith(f"{id_}  active  due 2")
    assert f"  what    calls {URL} every 3600 s" in [line.rstrip() for line in shown]


def test_a_firing_is_told_of_attempt_by_attempt(command: Command) -> None:
    command.said("timers", "set", "--id", "job", "--queue", "told", "--delay-s", "0")
    found = command.json("timers", "show", "job")
    assert found["queue"] == "told"
    line, code = command.refused("timers", "resend", "job")
    assert ("[not_failed]" in line, code) == (True, 2)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("show", "nobody"), "[no_such_timer]"),
        (("set", "--url", URL), "[bad_timer]"),
        (("set", "--url", URL, "--at", "soon"), "[wrong_type]"),
        (("set", "--url", URL, "--delay-s", "1", "--body", "{"), "[not_json]"),
        (("set", "--url", URL, "--delay-s", "1", "--header", "X-A"), "a header is NAME:VALUE"),
        (("set", "--url", "nowhere", "--delay-s", "1"), "[bad_url]"),
        (("list", "--state", "lost"), "[bad_parameter]"),
        (("move", "nobody", "--delay-s", "1"), "[no_such_timer]"),
        (("show", "nobody", "--app"), "[no_such_timer]"),
    ],
    ids=" ".join,
)
def test_an_error_is_one_line(command: Command, arguments: tuple[str, ...], says: str) -> None:
    line, code = command.refused("timers", *arguments)
    assert says in line
    assert code == 2


@pytest.mark.parametrize("action", ["list", "set", "show", "move", "cancel", "resend"])
def test_every_action_explains_itself(command: Command, action: str) -> None:
    text = " ".join(command.said("timers", action, "--help").split())
    assert f"example: onceward timers {action}" in text
    assert "ONCEWARD_SERVER" in text


def test_what_to_do_is_asked_for(command: Command) -> None:
    said = command.run("timers")
    assert said.returncode == 2
    assert "say what to do: list, set, show" in said.stderr
