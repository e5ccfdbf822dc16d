"""Commands for messages, jobs, queues and locks, against a real server."""

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
from tests.cli.commands import KEY, Command
from tests.server_process import ONCEWARD, ServerProcess

pytestmark = pytest.mark.timeout(300)  # for many processes on a busy machine

_numbers = count(1)


@pytest.fixture
def queue() -> str:
    """A queue of its own for each test."""
    return f"queue-{next(_numbers)}"


def request(server: ServerProcess, method: str, path: str, body: Any = None) -> Any:
    """A request as a worker sends it."""
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=50)) as connection:
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body), headers)
        answer = connection.getresponse()
        found = json.loads(answer.read())
    assert answer.status < 300, found
    return found


def fail(command: Command, queue: str, jobs: int, reason: str) -> list[str]:
    """Fail so many jobs of a queue permanently; returns their ids."""
    failed: list[str] = []
    while len(failed) < jobs:
        wanted = ("--max", str(jobs - len(failed)), "--wait-s", "5")
        for job in command.json("jobs", "claim", queue, *wanted)["jobs"]:
            command.said("jobs", "fail", job["id"], job["token"], reason, "--final")
            failed.append(job["id"])
    return failed


def test_a_message_is_sent_once(command: Command, queue: str) -> None:
    first = command.said("send", queue, '{"item": "lamp"}', "--key", "order-1")
    id_ = first.split()[1]
    assert first == f"Accepted {id_} (queued)\n"
    again = command.said("send", queue, "-", "--key", "order-1", text='{"item": "lamp"}')
    assert again == f"Accepted before: {id_} (queued)\n"
    found = command.json("send", queue, '{"item": "lamp"}', "--key", "order-1")
    assert (found["id"], found["duplicate"], found["state"]) == (id_, True, "queued")
    line, code = command.refused("send", queue, '{"item": "sofa"}', "--key", "order-1")
    assert line.endswith("[key_reused]")
    assert code == 2


def test_jobs_are_sent_found_and_shown_with_tags(command: Command, queue: str) -> None:
    id_ = command.json("send", queue, "1", "--tag", "red", "--tag", "big")["id"]
    command.said("send", queue, "2")
    assert "red, big" in command.said("jobs", "get", id_)
    listed = command.said("jobs", "list", "--queue", queue)
    assert "TAGS" in listed
    assert "red, big" in listed
    found = command.json("jobs", "list", "--queue", queue, "--tag", "big")["jobs"]
    assert [job["id"] for job in found] == [id_]
    assert command.json("jobs", "count", "--queue", queue, "--tag", "red")["jobs"] == 1
    assert command.json("jobs", "count", "--queue", queue)["jobs"] == 2
    line, code = command.refused("send", queue, "1", "--tag", "x" * 65)
    assert line.endswith("a tag must have 1 to 64 bytes, not 65 [bad_name]")
    assert code == 2


def test_many_messages_are_sent_each_with_a_verdict(command: Command, queue: str) -> None:
    messages = ['{"body": 1, "key": "a", "delay_s": 60}', '{"body": 2, "key": ""}']
    found = command.json("messages", "send-many", queue, *messages)["results"]
    assert [sorted(one) for one in found] == [["accepted"], ["rejected"]]
    text = command.said("messages", "send-many", queue, *messages)
    assert found[0]["accepted"]["id"] in text
    assert "[bad_key]" in text


def test_commands_are_processes_of_their_own(command: Command, queue: str) -> None:
    first = command.start("send", queue, "-", "--key", "k", text="[1]")
    assert (first.returncode, first.stderr) == (0, "")
    id_ = first.stdout.split()[1]
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
    assert said.splitlines()[0] == f"Accepted {job['id']} (succeeded)"
    assert '"sum": 3' in said
    again = command.said("send", queue, "[1, 2]", "--key", "k", "--wait-s", "20")
    assert again == said.replace("Accepted", "Accepted before:")
    assert command.json("jobs", "get", job["id"], "--wait-s", "20")["result"] == {"sum": 3}


def test_the_exit_code_of_a_wait_is_the_outcome_of_the_job(command: Command, queue: str) -> None:
    send = ("send", queue, "1", "--key")
    wait = ("--wait-s", "0.01")
    waited = command.run(*send, "late", *wait)
    assert (waited.returncode, waited.stderr) == (3, "")
    assert waited.stdout.endswith("(queued)\n")
    assert json.loads(command.run(*send, "late", *wait, "--json").stdout)["state"] == "queued"
    [failed] = fail(command, queue, 1, "ValueError: no")
    waited = command.run(*send, "late", *wait)
    assert (waited.returncode, waited.stderr) == (1, "")
    assert waited.stdout == f"Accepted before: {failed} (failed)\nValueError: no\n"
    done = command.json(*send, "done")["id"]
    assert command.run("jobs", "get", done, *wait).returncode == 3
    [job] = command.json("jobs", "claim", queue)["jobs"]
    assert command.run("jobs", "claim", queue, *wait).returncode == 3
    command.said("jobs", "complete", done, job["token"])
    cancelled = command.json(*send, "cancelled")["id"]
    command.said("jobs", "cancel", cancelled)
    codes = {id_: command.run("jobs", "get", id_, *wait) for id_ in (done, failed, cancelled)}
    assert [waited.returncode for waited in codes.values()] == [0, 1, 1]
    assert command.run("jobs", "get", failed).returncode == 0  # it has not waited
    for name in ("send", "jobs get"):
        shown = " ".join(command.said(*name.split(), "--help").split())
        assert "exit code is 0 if the job has succeeded, 1 if it has failed" in shown


def test_options_of_a_message_arrive(command: Command, queue: str) -> None:
    options = ("--delay-s", "60", "--order-key", "o", "--priority", "1")
    id_ = command.json("send", queue, "1", "--key", "k", *options)["id"]
    job = command.json("jobs", "get", id_)
    assert (job["state"], job["order_key"], job["priority"]) == ("scheduled", "o", 1)


def test_a_job_is_shown_with_its_attempts(command: Command, queue: str) -> None:
    command.said("send", queue, '{"to": "[red]Ann[/]"}', "--key", "k")
    [id_] = fail(command, queue, 1, "ValueError: no such\nplace")
    lines = [" ".join(line.split()) for line in command.said("jobs", "get", id_).splitlines()]
    assert f"id {id_}" in lines
    assert f"queue {queue}" in lines
    assert "state failed" in lines
    assert "attempts 1 of 5" in lines
    assert 'body {"to":"[red]Ann[/]"}' in lines
    assert "reason ValueError: no such" in lines
    assert any(line.startswith("attempt 1 20") and "operator" in line for line in lines)
    found = command.json("jobs", "get", id_)
    assert found["history"][0]["reason"] == "ValueError: no such\nplace"
    assert f"id {id_}" in " ".join(command.said("jobs", "history", id_).split())


def test_a_job_shows_its_traceback_and_who_retried_it(
    command: Command, queue: str, server: ServerProcess
) -> None:
    command.said("send", queue, "1", "--key", "k")
    [claimed] = command.json("jobs", "claim", queue, "--wait-s", "5")["jobs"]
    id_ = claimed["id"]
    traceback = 'Traceback:\n  File "shop.py", line 7\nValueError: no'
    said = {"token": claimed["token"], "reason": "ValueError: no", "final": True}
    request(
        server,
        "POST",
        f"/v1/jobs/{id_}/fail",
        said | {"type": "ValueError", "traceback": traceback},
    )
    command.said("jobs", "retry", id_)
    lines = [line.strip() for line in command.said("jobs", "get", id_).splitlines()]
    [retried] = [line.split("\t")[1] for line in lines if line.startswith("retried")]
    assert retried.endswith("by key:operator after: ValueError: no")
    at = lines.index("traceback\tTraceback:")
    assert lines[at + 1 : at + 3] == ['File "shop.py", line 7', "ValueError: no"]
    assert "shop.py" in command.said("jobs", "history", id_)


def test_a_job_is_cancelled(command: Command, queue: str) -> None:
    id_ = command.json("send", queue, "1", "--key", "k")["id"]
    assert command.said("jobs", "cancel", id_) == f"{id_} is cancelled\n"
    assert "cancelled by key:operator" in command.said("jobs", "get", id_)


def test_queues_are_listed_and_changed(command: Command, queue: str) -> None:
    command.said("send", queue, "1", "--key", "k")
    settings = ("--attempts-max", "3", "--key-field", "from", "--key-field", "id", "--fair")
    shown = " ".join(command.said("queues", "configure", queue, *settings).split())
    assert 'attempts max 3, key fields ["from","id"], fair yes' in shown
    found = command.json("queues", "pause", queue)
    rules = {"attempts_max": 3, "key_fields": ["from", "id"], "fair": True}
    assert found["settings"] == {**rules, "paused": True}
    assert command.json("queues", "resume", queue)["settings"] == rules
    change = ("--key-retention-s", "none", "--no-fair", "--key-field", "none")
    found = command.json("queues", "configure", queue, *change)
    assert found["settings"] == {"attempts_max": 3, "key_retention_ms": None}
    assert queue in {found["name"] for found in command.json("queues", "list")["queues"]}
    assert queue in command.listed("queues", "list")[0]


def test_a_table_of_queues_fits_a_terminal(command: Command, queue: str) -> None:
    long = f"{queue}.{80 * 'x'}"
    command.said("send", queue, "1", "--key", "k")
    command.said("queues", "pause", queue)
    shown, code = command.on_terminal("queues", "list")
    assert code == 0
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert {"QUEUE", "QUEUED", "RUNNING", "SUCCEEDED", "FAILED"} <= set(shown.split())
    assert re.search(rf"^{queue} .* paused$", shown, re.MULTILINE)
    command.said("queues", "configure", long, "--limit", "7")
    shown, code = command.on_terminal("queues", "list")
    assert long in shown.splitlines()


def test_failed_jobs_are_listed_and_retried(command: Command, queue: str) -> None:
    for number in range(4):
        command.said("send", queue, str(number), "--key", f"key-{number}")
    first = fail(command, queue, 2, "HTTPError: [503] " + 20 * "the bank is closed ")
    rest = fail(command, queue, 2, "KeyError: 'name'")
    shown, code = command.on_terminal("queues", "failed", queue)
    assert code == 0
    assert all(len(line) <= 80 for line in shown.splitlines())
    for id_ in first + rest:
        assert id_ in shown.split()
    assert re.search(r"  ended +20\d\d-\d\d-\d\d \d\d:\d\d:\d\dZ", shown)
    assert re.search(r"  reason +KeyError: 'name'", shown)
    few = ("queues", "failed", queue, "--limit", "2")
    listed = command.json(*few)
    # They may have failed in the same millisecond.
    assert sorted(job["id"] for job in listed["jobs"]) == sorted(first)
    assert "There are more. Use --limit" in command.listed(*few)[1]
    others = command.json(*few, f"--{START}", listed["next"])
    assert sorted(job["id"] for job in others["jobs"]) == sorted(rest)
    assert command.said("jobs", "retry", rest[0]) == f"{rest[0]} is queued\n"
    found = command.json("queues", "redrive", queue, "--reason", "bank")
    assert found == {"jobs": 2, "next": None}
    assert command.said("queues", "redrive", queue) == "1 job retried\n"
    assert command.listed("queues", "failed", queue) == ("", f"No failed jobs in {queue!r}.\n")
    looked = command.listed("jobs", "list", "--queue", queue, "--state", "in_doubt")
    assert looked == ("", f"No jobs in doubt in {queue!r}.\n")


START = "after"


def test_jobs_are_listed_over_all_pages(command: Command, queue: str) -> None:
    bodies = [json.dumps({"body": n, "key": str(n)}) for n in range(60)]
    command.said("messages", "send-many", queue, *bodies)
    find = ("jobs", "list", "--queue", queue)
    assert len(command.json(*find)["jobs"]) == 50
    found = command.json(*find, "--limit", "55")
    assert (len(found["jobs"]), found["next"] is None) == (55, False)
    assert command.json(*find, "--limit", "100")["next"] is None
    lines = command.said(*find, "--limit", "100").splitlines()
    assert lines[0].split()[:2] == ["ID", "STATE"]
    assert len(lines) == 61


def test_a_purge_asks_first(command: Command, queue: str) -> None:
    for number in range(3):
        command.said("send", queue, str(number), "--key", str(number))
    question = f"Cancel all waiting jobs in {queue!r}?"
    line, code = command.refused("queues", "purge", queue)
    assert (line, code) == (f"onceward: {question} Confirm with --yes [bad_request]", 2)
    shown, code = command.on_terminal("queues", "purge", queue, typed=b"n\n")
    assert code == 1
    assert f"{question} [y/N]" in shown
    shown, code = command.on_terminal("queues", "purge", queue, typed=b"yes\n")
    assert code == 0
    assert shown.endswith("3 jobs cancelled\n")
    assert command.said("queues", "purge", queue, "--yes") == "0 jobs cancelled\n"
    assert command.json("queues", "purge", queue, "--yes") == {"jobs": 0, "next": None}


def test_progress_is_shown_on_a_terminal(
    command: Command, server: ServerProcess, queue: str
) -> None:
    messages = [{"body": number, "key": str(number)} for number in range(20)]
    request(server, "POST", f"/v1/inbox/{queue}/batch", {"messages": messages})
    fail(command, queue, 2, "why")
    impatient = "cli.display.PATIENCE_NS = -1"
    shown, code = command.on_terminal("queues", "redrive", queue, before=impatient)
    assert (code, "Retried 2 " in shown, "2 jobs retried" in shown) == (0, True, True)
    arguments = ("queues", "purge", queue, "--yes")
    shown, code = command.on_terminal(*arguments, before=impatient)
    assert (code, "Cancelled 20 " in shown, "20 jobs cancelled" in shown) == (0, True, True)
    shown, code = command.on_terminal(*arguments, "--json", before=impatient)
    assert json.loads(shown) == {"jobs": 0, "next": None}


def test_a_lock_is_shown_with_its_holders(command: Command, queue: str) -> None:
    held = command.json("locks", "acquire", queue, "--owner", "[b]host-7[/]", "--lease-s", "60")
    said = command.said("locks", "get", queue)
    assert said.splitlines()[0] == f"{queue}: 1 of 1 held, 0 waiting"
    assert "[b]host-7[/]" in said
    assert command.json("locks", "get", queue)["holders"][0]["owner"] == "[b]host-7[/]"
    line, code = command.refused("locks", "acquire", queue)
    assert (line.endswith("[lock_held]"), code) == (True, 75)
    assert command.json("locks", "release", held["id"]) == {"released": True}
    line, code = command.refused("locks", "get", "never used")
    assert line.endswith("[no_such_lock]")
    assert code == 2


@pytest.mark.parametrize(
    ("arguments", "says", "code"),
    [
        (("jobs", "get", "nothing"), "[no_such_job]", 2),
        (("jobs", "cancel", "nothing"), "[no_such_job]", 2),
        (("send", "q", "{"), "BODY is not JSON: ", 2),
        (("send", "q", "lamp"), "(byte 0); quote texts twice: '\"text\"' [not_json]", 2),
        (("send", "a b", "1", "--key", "k"), "a queue name must have ", 2),
        (("queues", "configure", "q", "--limit", "much"), "--limit must be a whole number", 2),
        (("queues", "configure", "q", "--rate", "-1"), "rate", 2),
        (("queues", "failed", "q", "--limit", "0"), "--limit is 0; use 1 or more", 2),
        (("jobs", "list", "--state", "lost"), "unknown --state 'lost'; use one of", 2),
        (("queues", "list", "--api-key", "ow_wrong"), "[no_credentials]", 77),
        (("queues", "list", "--api-key", ""), "[no_credentials]", 77),
        (("queues", "list", "--server", "localhost"), "use http://… or https://…", 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_an_error_is_one_line(
    command: Command, arguments: tuple[str, ...], says: str, code: int
) -> None:
    line, found = command.refused(*arguments)
    assert says in line
    assert found == code


def test_a_server_that_cannot_be_reached_is_named(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli.calls, "_PATIENCE_S", 0.1)
    line, code = command.refused("queues", "list", "--server", "http://127.0.0.1:1")
    assert line == (
        "onceward: cannot connect to http://127.0.0.1:1 (connection refused). Check that the "
        "server is running. Start it with `onceward serve`. [engine_unreachable]"
    )
    assert code == 75


def test_a_reader_that_stops_reading_is_no_error(command: Command, queue: str) -> None:
    command.said("send", queue, "1", "--key", "k")
    out, into = os.pipe()
    os.close(out)
    process = subprocess.run(
        [*ONCEWARD, "queues", "list"], stdout=into, stderr=subprocess.PIPE, env=command.environment
    )
    os.close(into)
    assert (process.returncode, process.stderr) == (141, b"")


def test_only_a_step_in_doubt_is_settled(command: Command, queue: str) -> None:
    id_ = command.json("send", queue, "1", "--key", "k")["id"]
    line, code = command.refused("jobs", "settle", id_, "pay", "--not-done")
    assert (line.endswith("[not_failed]"), code) == (True, 2)
    settle = ("jobs", "settle")
    assert command.refused(*settle, "x", "pay", "--done", "1")[0].endswith("[no_such_job]")
    assert command.refused(*settle, id_, "pay", "--done", "{")[0].endswith("[not_json]")


def test_a_link_signs_in_to_the_console_as_the_caller(
    command: Command, server: ServerProcess
) -> None:
    address = command.said("console").strip()
    place, _, link = address.partition("#enter=")
    assert place == f"{server.url}/console"
    entered = request(server, "POST", "/v1/session", {"link": link})
    assert (entered["name"], entered["grants"]) == ("operator", [{"action": "all"}])
    assert command.json("console")["address"].startswith(f"{place}#enter=")


def test_a_job_is_followed_until_it_ends(command: Command, queue: str) -> None:
    id_ = command.json("send", queue, "1")["id"]
    [job] = command.json("jobs", "claim", queue, "--wait-s", "5")["jobs"]
    chunks = ['"Once "', '"upon\\n"', '"a\\u001b["', '{"a": 1}']
    words = [word for chunk in chunks for word in ("--chunks", chunk)]
    progress = ("--progress", "0.4", "--text", "page 4 of 10")
    command.said("jobs", "report", id_, job["token"], *progress, *words)
    shown = command.said("jobs", "get", id_)
    assert "40%" in shown
    assert "page 4 of 10" in shown
    assert "40%" in command.said("jobs", "list", "--queue", queue)
    command.said("jobs", "complete", id_, job["token"])
    found = command.run("jobs", "follow", id_)
    assert found.returncode == 0
    assert found.stdout == 'Once upon\na\\x1b[\n{"a":1}\n'
    assert found.stderr == "40% page 4 of 10\nState: succeeded\n"
    lines = [
        json.loads(line) for line in command.said("jobs", "follow", id_, "--json").splitlines()
    ]
    assert [line["kind"] for line in lines] == ["progress", *["chunk"] * 4, "end"]
    found = command.run("jobs", "follow", id_, "--after", str(lines[-3]["seq"]))
    assert found.stdout == '{"a":1}\n'
    line, code = command.refused("jobs", "follow", "x")
    assert (line.endswith("[no_such_job]"), code) == (True, 2)
