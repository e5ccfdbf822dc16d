"""The commands about tables, against a real server."""

import pytest

from tests.cli.commands import Command

pytestmark = pytest.mark.timeout(300)  # for many processes on a busy machine


def test_a_table_is_made_joined_played_at_and_closed(command: Command) -> None:
    policy = '{"kind": "ranked", "tiers": []}'
    assert command.said("tables", "create", "--id", "t1", "--policy", policy) == "Created t1\n"
    assert command.said("tables", "join", "t1", "--user", "ann") == "ann plays at t1 as X\n"
    command.said("tables", "join", "t1", "--user", "ben")
    told = command.said("tables", "join", "t1", "--user", "cas")
    assert "cas is number 1 in the waitlist of t1" in told
    assert command.said("tables", "result", "t1", "ann") == "Ended game 1: won by ann\n"
    assert "X: ann, O: cas" in command.said("tables", "show", "t1")
    command.said("tables", "join", "t1", "--user", "dan")
    told = command.said("tables", "waitlist", "t1")
    assert [line.split()[:2] for line in told.splitlines()] == [["1.", "ben"], ["2.", "dan"]]
    assert command.said("tables", "waitlist", "t1", "--limit", "1").splitlines()[1:] == [
        "There are more than 1."
    ]
    assert [one["users"] for one in command.json("tables", "waitlist", "t1")] == [["ben"], ["dan"]]
    command.said("tables", "leave", "t1", "--user", "dan")
    assert command.json("tables", "place", "t1", "--user", "ben")["position"] == 1
    assert command.said("tables", "leave", "t1", "--user", "ben") == "ben is not at t1\n"
    assert command.said("tables", "leaders").split()[:2] == ["1.", "ann"]
    assert "paused" in command.said("tables", "pause", "t1")
    assert "playing" in command.said("tables", "resume", "t1")
    assert "t1" in command.said("tables", "list", "--prefix", "t1")
    assert command.said("tables", "waitlist", "t1") == "The waitlist is empty.\n"
    command.said("tables", "leave", "t1", "--user", "cas")
    assert "X: ann, O: empty" in command.said("tables", "show", "t1")
    assert command.json("tables", "show", "t1")["seats"]["O"] is None
    assert "closed" in command.said("tables", "close", "t1")


def test_what_cannot_be_meant_is_refused(command: Command) -> None:
    for words, code in (
        (("create", "--policy", '{"seats": []}'), "bad_policy"),
        (("create", "--policy", "[]"), "bad_policy"),
        (("create", "--policy", "{"), "not_json"),
        (("show", "none"), "no_such_table"),
        (("list", "--limit", "0"), "bad_request"),
    ):
        line, _ = command.refused("tables", *words)
        assert f"[{code}]" in line
