"""Commands that talk to a server, against a real one."""

import json
import os
import re
import subprocess
from contextlib import closing
from http.client import HTTPConnection
from itertools import count
from typing import Any

import pytest

from onceward import cli
from onceward.api.arguments import argument_name
from onceward.cli.remote import QUEUE_SETTINGS
from onceward.schedule.settings import QueueSettings
from tests.cli.commands import KEY, Command
from tests.server_process import ONCEWARD, ServerProcess

pytestmark = pytest.mark.timeout(300)  # for many processes on a busy machine

_numbers = count(1)


@pytest.fixture
def queue() -> str:
    """A queue of its own for each test."""
    return f"queue-{next(_numbers)}"


def request(server: ServerProcess, method: str, path: str, body: Any = None) -> Any:
    """What a worker would do, by hand."""
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=50)) as connection:
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body), headers)
        answer = connection.getresponse()
        found = json.loads(answer.read())
    assert answer.status < 300, found
    return found


def kill_off(server: ServerProcess, queue: str, jobs: int, reason: str) -> list[str]:
    """Let so many jobs of a queue die; returns their ids."""
    died: list[str] = []
    while len(died) < jobs:
        ask = {"max": jobs - len(died), "wait_ms": 5_000}
        for job in request(server, "POST", f"/v1/queues/{queue}/claim", ask)["jobs"]:
            failure = {"token": job["token"], "reason": reason, "final": True}
            request(server, "POST", f"/v1/jobs/{job['id']}/fail", failure)
            died.append(job["id"])
    return died


def test_a_message_is_sent_once(command: Command, queue: str) -> None:
    first = command.said("send", queue, '{"item": "lamp"}', "--key", "order-1")
    id_ = first.split()[0]
    assert first == f"{id_} is accepted and is queued\n"
    again = command.said("send", queue, "-", "--key", "order-1", text='{"item": "lamp"}')
    assert again == f"{id_} was accepted before and is queued\n"
    found = command.json("send", queue, '{"item": "lamp"}', "--key", "order-1")
    assert (found["id"], found["duplicate"], found["state"]) == (id_, True, "queued")
    line, code = command.refused("send", queue, '{"item": "sofa"}', "--key", "order-1")
    assert line.endswith("[key_reused]")
    assert code == 2


def test_commands_are_processes_of_their_own(command: Command, queue: str) -> None:
    first = command.start("send", queue, "-", "--key", "k", text="[1]")
    assert (first.returncode, first.stderr) == (0, "")
    id_ = first.stdout.split()[0]
    again = command.start("send", queue, "[1]", "--key", "k", "--json")
    assert json.loads(again.stdout)["id"] == id_
    other = command.start("send", queue, "[2]", "--key", "k")
    assert (other.returncode, other.stdout) == (2, "")
    assert other.stderr.startswith("onceward: ")
    assert other.stderr.endswith("[key_reused]\n")


def test_the_result_of_a_message_is_waited_for(
    command: Command, server: ServerProcess, queue: str
) -> None:
    waiting = subprocess.Popen(
        [*ONCEWARD, "send", queue, "[1, 2]", "--key", "k", "--wait-s", "300"],
        stdout=subprocess.PIPE,
        text=True,
        env=command.environment,
    )
    ask = {"wait_ms": 40_000}
    [job] = request(server, "POST", f"/v1/queues/{queue}/claim", ask)["jobs"]
    done = {"token": job["token"], "result": {"sum": 3}}
    request(server, "POST", f"/v1/jobs/{job['id']}/complete", done)
    said, _ = waiting.communicate(timeout=50)
    assert said.splitlines()[0] == f"{job['id']} is accepted and is succeeded"
    assert '"sum": 3' in said
    again = command.said("send", queue, "[1, 2]", "--key", "k", "--wait-s", "20")
    assert again == said.replace("is accepted and", "was accepted before and")
    assert command.json("jobs", job["id"], "--wait-s", "20")["result"] == {"sum": 3}


def test_options_of_a_message_arrive(command: Command, queue: str) -> None:
    options = ("--delay-s", "60", "--order-key", "o", "--priority", "1")
    id_ = command.json("send", queue, "1", "--key", "k", *options)["id"]
    job = command.json("jobs", id_)
    assert (job["state"], job["order_key"], job["priority"]) == ("scheduled", "o", 1)


def test_a_job_is_shown_with_all_that_happened_to_it(
    command: Command, server: ServerProcess, queue: str
) -> None:
    command.said("send", queue, '{"to": "[red]Ann[/]"}', "--key", "k")
    [id_] = kill_off(server, queue, 1, "ValueError: no such\nplace")
    lines = [" ".join(line.split()) for line in command.said("jobs", id_).splitlines()]
    assert f"job {id_}" in lines
    assert f"queue {queue}" in lines
    assert "state failed" in lines
    assert "attempts 1 of 5" in lines
    assert 'body {"to":"[red]Ann[/]"}' in lines
    assert "reason ValueError: no such" in lines
    assert any(line.startswith("attempt 1 20") and "operator" in line for line in lines)
    found = command.json("jobs", id_)
    assert found["history"][0]["reason"] == "ValueError: no such\nplace"


def test_a_job_is_cancelled(command: Command, queue: str) -> None:
    id_ = command.json("send", queue, "1", "--key", "k")["id"]
    assert command.json("jobs", id_, "--cancel")["state"] == "cancelled"
    assert "cancelled by key:operator" in command.said("jobs", id_)


def test_queues_are_listed_and_changed(command: Command, queue: str) -> None:
    command.said("send", queue, "1", "--key", "k")
    settings = ("--set", "attempts_max=3", "--set", 'key_fields=["from", "id"]')
    shown = " ".join(command.said("queues", queue, *settings).split())
    assert 'attempts_max 3, key_fields ["from","id"]' in shown
    [found] = command.json("queues", queue, "--pause")
    assert found["settings"] == {"attempts_max": 3, "key_fields": ["from", "id"], "paused": True}
    [found] = command.json("queues", queue, "--resume")
    assert "paused" not in found["settings"]
    assert queue in {found["name"] for found in command.json("queues")}
    assert queue in command.said("queues")


def test_a_table_of_queues_fits_a_terminal(command: Command, queue: str) -> None:
    long = f"{queue}.{80 * 'x'}"
    command.said("send", long, "1", "--key", "k")
    command.said("queues", long, "--set", "rate=2.5", "--set", "limit=7")
    shown, code = command.on_terminal("queues", long)
    assert code == 0
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert {"queue", "queued", "running", "succeeded", "failed", "settings"} <= set(shown.split())
    assert {"rate", "2.5"} <= set(shown.split()), "the settings are wrapped"


def test_dead_letters_are_listed_and_redriven(
    command: Command, server: ServerProcess, queue: str
) -> None:
    for number in range(4):
        command.said("send", queue, str(number), "--key", f"key-{number}")
    first = kill_off(server, queue, 2, "HTTPError: [503] " + 20 * "the bank is closed ")
    rest = kill_off(server, queue, 2, "KeyError: 'name'")
    shown, code = command.on_terminal("dead", queue)
    assert code == 0
    assert all(len(line) <= 80 for line in shown.splitlines())
    for id_ in first + rest:
        assert re.search(rf"{id_}  failed  20\d\d-\d\d-\d\d \d\d:\d\d:\d\dZ  tried once", shown)
    assert "  key     key-0" in shown
    assert "  reason  KeyError: 'name'" in shown
    listed = [job["id"] for job in command.json("dead", queue, "--limit", "2")]
    assert sorted(listed) == sorted(first)  # they may have died in the same millisecond
    assert "There are more than 2." in command.said("dead", queue, "--limit", "2")
    listed = [job["id"] for job in command.json("dead", queue, "--reason", "name")]
    assert sorted(listed) == sorted(rest)
    rest = listed
    only = ("--reason", "name", "--limit", "1")
    assert [job["id"] for job in command.json("dead", queue, *only)] == rest[:1]
    assert "There are more than 1." in command.said("dead", queue, *only)
    assert "more" not in command.said("dead", queue, "--reason", "name", "--limit", "2")
    assert [job["id"] for job in command.json("dead", queue, "--id", rest[0])] == [rest[0]]
    assert command.said("dead", queue, "--redrive", "--id", rest[0]) == "1 job redriven\n"
    assert command.json("dead", queue, "--redrive", "--reason", "bank") == {
        "jobs": 2,
        "in_doubt": 0,
    }
    assert command.said("dead", queue, "--redrive") == "1 job redriven\n"
    assert command.said("dead", queue) == f"{queue} has no dead letters\n"
    assert command.said("dead", queue, "--reason", "x") == f"{queue} has no such dead letters\n"


def test_a_dead_letter_of_another_queue_is_left_alone(
    command: Command, server: ServerProcess, queue: str
) -> None:
    command.said("send", queue, "1", "--key", "k")
    [id_] = kill_off(server, queue, 1, "why")
    for arguments in ((), ("--redrive",)):
        line, code = command.refused("dead", "another", "--id", id_, *arguments)
        assert line == f"onceward: 'another' has no job {id_} [no_such_job]"
        assert code == 2
    assert command.json("jobs", id_)["state"] == "failed"


def test_a_purge_asks_first(command: Command, queue: str) -> None:
    for number in range(3):
        command.said("send", queue, str(number), "--key", str(number))
    line, code = command.refused("queues", queue, "--purge")
    assert (line, code) == ("onceward: to cancel all jobs that wait, say --yes [bad_request]", 2)
    shown, code = command.on_terminal("queues", queue, "--purge", typed=b"n\n")
    assert code == 1
    assert f"Cancel all jobs of {queue} that wait? [y/N]" in shown
    shown, code = command.on_terminal("queues", queue, "--purge", typed=b"yes\n")
    assert code == 0
    assert shown.endswith("3 jobs cancelled\n")
    assert command.said("queues", queue, "--purge", "--yes") == "0 jobs cancelled\n"
    assert command.json("queues", queue, "--purge", "--yes") == {"jobs": 0}


def test_progress_is_shown_on_a_terminal(
    command: Command, server: ServerProcess, queue: str
) -> None:
    messages = [{"body": number, "key": str(number)} for number in range(20)]
    request(server, "POST", f"/v1/inbox/{queue}/batch", {"messages": messages})
    kill_off(server, queue, 2, "why")
    impatient = "cli.display.PATIENCE_NS = -1"
    shown, code = command.on_terminal("dead", queue, "--redrive", before=impatient)
    assert (code, "redriven 2 " in shown, "2 jobs redriven" in shown) == (0, True, True)
    arguments = ("queues", queue, "--purge", "--yes")
    shown, code = command.on_terminal(*arguments, before=impatient)
    assert (code, "cancelled 20 " in shown, "20 jobs cancelled" in shown) == (0, True, True)
    shown, code = command.on_terminal(*arguments, "--json", before=impatient)
    assert json.loads(shown) == {"jobs": 0}


def test_a_lock_is_shown_with_who_holds_it_and_who_waits(
    command: Command, server: ServerProcess, queue: str
) -> None:
    asked = {"names": [queue], "owner": "[b]host-7[/]/printing", "lease_ms": 60_000}
    request(server, "POST", "/v1/locks/acquire", asked)
    said = command.said("locks", queue)
    assert said.splitlines()[0] == f"{queue}: 1 of 1 held, 0 wait"
    assert "[b]host-7[/]/printing" in said
    assert command.json("locks", queue)["holders"][0]["owner"] == "[b]host-7[/]/printing"
    line, code = command.refused("locks", "never used")
    assert line.endswith("[no_such_lock]")
    assert code == 2


def test_the_help_names_every_setting() -> None:
    by_code_only = {"internal", "remote_work"}
    names = {argument_name(name) for name in QueueSettings.__struct_fields__}
    assert {*QUEUE_SETTINGS, "paused"} | by_code_only == names


@pytest.mark.parametrize(
    ("arguments", "says", "code"),
    [
        (("jobs", "nothing"), "[no_such_job]", 2),
        (("jobs", "nothing", "--cancel"), "[no_such_job]", 2),
        (("send", "q", "{"), "the body is not JSON: ", 2),
        (("send", "q", "lamp"), "(byte 0); a text is written as '\"text\"' [not_json]", 2),
        (("send", "a b", "1", "--key", "k"), "a queue's name has ", 2),
        (("queues", "--pause"), "name the queue that is to be changed", 2),
        (("queues", "q", "--set", "limit"), "a setting is NAME=VALUE, not 'limit'", 2),
        (("queues", "q", "--set", "limit=much"), "limit is not JSON", 2),
        (("queues", "q", "--set", "colour=1"), "colour", 2),
        (("dead", "q", "--limit", "0"), "limit is not valid: expected `int` >= 1, not '0'", 2),
        (("queues", "--api-key", "ow_wrong"), "[no_credentials]", 77),
        (("queues", "--api-key", ""), "[no_credentials]", 77),
        (("queues", "--server", "localhost"), "a server's address is http:// or https://", 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_an_error_is_one_line(
    command: Command, arguments: tuple[str, ...], says: str, code: int
) -> None:
    line, found = command.refused(*arguments)
    assert says in line
    assert found == code


def test_a_server_that_is_away_is_said_to_be_so(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli.calls, "_PATIENCE_S", 0.1)
    line, code = command.refused("queues", "--server", "http://127.0.0.1:1")
    assert line == (
        "onceward: http://127.0.0.1:1 does not answer: Connection refused [engine_unreachable]"
    )
    assert code == 75


@pytest.mark.parametrize("name", ["send", "queues", "jobs", "dead", "locks"])
def test_every_command_explains_itself(command: Command, name: str) -> None:
    text = " ".join(command.said(name, "--help").split())
    assert f"example: onceward {name} " in text
    assert "ONCEWARD_SERVER" in text


def test_who_reads_no_more_is_no_error(command: Command, queue: str) -> None:
    command.said("send", queue, "1", "--key", "k")
    out, into = os.pipe()
    os.close(out)
    process = subprocess.run(
        [*ONCEWARD, "queues"], stdout=into, stderr=subprocess.PIPE, env=command.environment
    )
    os.close(into)
    assert (process.returncode, process.stderr) == (141, b"")


def test_what_is_not_in_doubt_is_not_settled(command: Command, queue: str) -> None:
    id_ = command.said("send", queue, "1", "--key", "k").split()[0]
    line, code = command.refused("settle", id_, "pay", "--not-done")
    assert (line.endswith("[not_failed]"), code) == (True, 2)
    assert command.refused("settle", "x", "pay", "--done", "1")[0].endswith("[no_such_job]")
    assert command.refused("settle", id_, "pay", "--done", "{")[0].endswith("[not_json]")


def test_a_link_opens_the_console_as_who_asked_for_it(
    command: Command, server: ServerProcess
) -> None:
    address = command.said("console").strip()
    place, _, link = address.partition("#enter=")
    assert place == f"{server.url}/console"
    entered = request(server, "POST", "/v1/session", {"link": link})
    assert (entered["name"], entered["grants"]) == ("operator", [{"action": "all"}])
    assert command.json("console")["address"].startswith(f"{place}#enter=")
