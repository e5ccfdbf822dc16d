"""The commands about rooms, against a real server."""

import pytest

from tests.cli.commands import Command

pytestmark = pytest.mark.timeout(300)  # for many processes on a busy machine

SET = '{"op": "map.set", "map": "m", "key": "k", "value": 1}'


def test_a_room_is_made_changed_seen_and_deleted(command: Command) -> None:
    assert command.said("rooms", "create", "one", "--meta", '{"team": "a"}') == "one is made\n"
    line, code = command.refused("rooms", "create", "one")
    assert "[room_exists]" in line
    assert code == 2
    assert command.said("rooms", "change", "one", SET) == "one is at 1\n"
    assert command.json("rooms", "state", "one")["maps"] == {"m": {"k": 1}}
    assert command.json("rooms", "state", "one", "--at", "0")["maps"] == {}
    history = command.said("rooms", "history", "one")
    assert '"map.set"' in history
    assert "operator" in history
    assert "created it, not joined yet" in command.said("rooms", "members", "one")
    assert "capacity" in command.said("rooms", "configure", "one", "--capacity", "7")
    shown = command.said("rooms", "show", "one")
    assert '{"team":"a"}' in shown
    assert command.json("rooms", "show", "one")["capacity"] == 7
    assert "3 connections each" in command.said("rooms", "configure", "one", "--per-user", "3")
    assert command.said("rooms", "delete", "one") == "one is deleted\n"
    line, code = command.refused("rooms", "show", "one")
    assert "[no_such_room]" in line


def test_rooms_are_listed(command: Command) -> None:
    for number in range(3):
        meta = f'{{"odd": {"true" if number % 2 else "false"}}}'
        command.said("rooms", "create", f"listed-{number}", "--meta", meta)
    text = command.said("rooms", "list", "--prefix", "listed-")
    assert [line.split()[0] for line in text.splitlines() if "listed-" in line] == [
        f"listed-{number}" for number in range(3)
    ]
    found = command.json("rooms", "list", "--meta", '{"odd": true}')
    assert [room["id"] for room in found] == ["listed-1"]
    assert "There are more than 2." in command.said(
        "rooms", "list", "--prefix", "listed-", "--limit", "2"
    )
    assert command.said("rooms", "list", "--prefix", "none") == "there are no such rooms\n"


def test_wrong_usage_is_told(command: Command) -> None:
    line, code = command.refused("rooms", "change", "one", "{")
    assert "[not_json]" in line
    assert code == 2
