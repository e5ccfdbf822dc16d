"""`onceward sessions`, against a real server."""

import json
from urllib.request import Request, urlopen

from tests.cli.commands import KEY, Command
from tests.server_process import ServerProcess


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
    assert command.said("sessions", "revoke", listed[0]["id"]) == "1 session revoked\n"
    line, _ = command.refused("sessions", "revoke", listed[0]["id"])
    assert line.endswith("[no_such_session]")
    assert command.json("sessions", "revoke", "--all", "--caller", "key:operator") == {
        "sessions": 2
    }
    assert command.said("sessions", "revoke", "--all") == "0 sessions revoked\n"
    for odd in (("sessions", "revoke"), ("sessions", "revoke", "x", "--all")):
        line, code = command.refused(*odd)
        assert "--all" in line
        assert code == 2
