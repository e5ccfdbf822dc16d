"""The commands about endpoints, against a real server."""

import pytest

from tests.cli.commands import Command

pytestmark = pytest.mark.timeout(300)  # for many processes on a busy machine

URL = "https://example.invalid/hook"
SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"
OTHER = "whsec_YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4"


def test_an_endpoint_is_made_shown_changed_and_removed(command: Command) -> None:
    made = command.said(
        *("endpoints", "make", URL, "--id", "shop", "--secret", SECRET),
        *("--description", "The shop", "--header", "X-A: 1"),
    )
    assert SECRET in made
    shown = command.said("endpoints", "show", "shop")
    assert SECRET not in shown
    assert ("The shop" in shown, "X-A: 1" in shown, "well" in shown) == (True, True, True)
    assert SECRET in command.said("endpoints", "show", "shop", "--secret")
    assert "disabled" in command.said("endpoints", "change", "shop", "--disable")
    assert command.json("endpoints", "change", "shop", "--enable")["disabled"] is False
    changed = command.json("endpoints", "change", "shop", "--url", URL + "2")
    assert (changed["url"], changed["description"]) == (URL + "2", "The shop")
    changed = command.json("endpoints", "change", "shop", "--retry-pauses-s", "60")
    assert changed["retry"]["pauses_ms"] == [60_000]
    assert "shop" in command.said("endpoints", "list")
    assert [one["id"] for one in command.json("endpoints", "list")] == ["shop"]
    assert command.json("endpoints", "remove", "shop") == {"id": "shop"}
    assert command.said("endpoints", "list") == "there are no endpoints\n"


def test_a_secret_is_rotated(command: Command) -> None:
    command.said("endpoints", "make", URL, "--id", "turning", "--secret", SECRET)
    text = command.said("endpoints", "rotate", "turning", "--secret", OTHER)
    assert OTHER in text
    assert f"{SECRET} until " in text
    found = command.json("endpoints", "rotate", "turning", "--overlap-s", "0")
    assert len(found["secrets"]) == 1
    command.said("endpoints", "remove", "turning")


def test_a_test_call_is_sent(command: Command) -> None:
    command.said("endpoints", "make", URL, "--id", "tested", "--secret", SECRET)
    text = command.said("endpoints", "test", "tested")
    timer = command.json("timers", "show", text.split()[-1])
    assert (timer["endpoint"], timer["attempts_max"]) == ("tested", 1)
    command.said("endpoints", "remove", "tested")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("show", "nobody"), "[no_such_endpoint]"),
        (("make", "nowhere"), "[bad_url]"),
        (("make", URL, "--secret", "x"), "[bad_secret]"),
        (("make", URL, "--header", "Host: a"), "[bad_endpoint]"),
        (("change", "nobody"), "nothing to change"),
        (("make", URL, "--retry-pauses-s", "soon"), "pauses are seconds"),
        (("change", "nobody", "--enable"), "[no_such_endpoint]"),
        (("rotate", "nobody"), "[no_such_endpoint]"),
        (("test", "nobody"), "[no_such_endpoint]"),
    ],
    ids=" ".join,
)
def test_an_error_is_one_line(command: Command, arguments: tuple[str, ...], says: str) -> None:
    line, code = command.refused("endpoints", *arguments)
    assert says in line
    assert code == 2


@pytest.mark.parametrize("action", ["list", "make", "show", "change", "rotate", "test", "remove"])
def test_every_action_explains_itself(command: Command, action: str) -> None:
    text = " ".join(command.said("endpoints", action, "--help").split())
    assert f"example: onceward endpoints {action}" in text
