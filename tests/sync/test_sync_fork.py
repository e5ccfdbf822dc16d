"""Forked processes: a child never touches what its parent has opened."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from onceward.sync import App
from tests.preloaded import QUIET, gunicorn
from tests.server_process import ServerProcess, environment


def run(program: str, folder: Path, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, *QUIET, "-c", program, *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


# The parent uses the application before, while and after a child runs. The child ends as processes
# do, with all that Python closes then.
FORKED = """
import os, sys
import onceward
from onceward.sync import App

app = App(sys.argv[1])

@app.handler("numbers")
async def double(job):
    return job.body * 2

def attempt(who, call):
    try:
        print(who, call(), flush=True)
    except onceward.OncewardError as error:
        print(who, error.code, "Client" in error.message and "outbox" in error.message, flush=True)

app.start()
locks, queues = app.locks, app.queues
attempt("parent", lambda: app.wait(app.send("numbers", 1).id).result)
pid = os.fork()
if not pid:
    attempt("child", lambda: app.wait(app.send("numbers", 2).id).result)
    attempt("child", lambda: locks.status("a"))
    attempt("child", lambda: app.start().name)
    app.stop()
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
attempt("parent", lambda: app.wait(app.send("numbers", 3).id).result)
"""


@pytest.mark.parametrize("url", ["sqlite:///app.db", "memory://"])
def test_a_child_cannot_use_the_database_of_its_parent(tmp_path: Path, url: str) -> None:
    refused = ["child forked True"] * 3
    assert run(FORKED, tmp_path, url) == ["parent 2", *refused, "parent 6"]
    if url != "memory://":
        assert run(FORKED, tmp_path, url) == ["parent 2", *refused, "parent 6"]


def test_a_child_starts_again_on_postgresql(tmp_path: Path, url: str) -> None:
    found = run(FORKED, tmp_path, url)
    assert found == [
        *("parent 2", "child 4", "child forked True"),  # an object of the parent
        *("child bad_request False", "parent 6"),  # it is running already
    ]


# Two processes that start the application after the fork.
LATE = """
import os, sys
import onceward
from onceward.sync import App
app = App("sqlite:///app.db")
started, tried = os.pipe(), os.pipe()
if not os.fork():
    app.start()
    app.send("q", 1)
    os.write(started[1], b".")
    os.read(tried[0], 1)
    sys.exit(0)
os.read(started[0], 1)
try:
    app.start()
except onceward.CannotOpen as error:
    print(error)
os.write(tried[1], b".")
os.wait()
"""


def test_a_second_process_on_a_sqlite_file_learns_what_to_use(tmp_path: Path) -> None:
    [said] = run(LATE, tmp_path)
    assert said.endswith("[database_in_use]")
    assert "`Client`" in said
    assert "outbox" in said


# The event loop of the parent, and the locks of its threads, do not exist in the child.
BUSY = """
import os, sys, threading
from onceward.sync import Client

client = Client(sys.argv[1])
client.send("q", "parent")
ending = threading.Event()
def send():
    while not ending.is_set():
        client.send("busy", 1)
threads = [threading.Thread(target=send) for _ in range(3)]
for thread in threads:
    thread.start()
for number in range(5):
    pid = os.fork()
    if not pid:
        jobs = client.jobs
        receipt = client.send("q", number)
        print(jobs.get(receipt.id).body, flush=True)
        os._exit(0) if number % 2 else sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
ending.set()
for thread in threads:
    thread.join()
print(client.send("q", "again").state)
"""


def test_a_client_connects_again_in_a_child(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        found = run(BUSY, tmp_path, server.url)
    assert found == [*"01234", "queued"]


LIVE = """
import os, sys
import onceward
from onceward.sync import Client
with Client(sys.argv[1]) as client, client.live() as live:
    room = live.join("board", create=True)
    pid = os.fork()
    if not pid:
        for call in (lambda: room.map("a").set("b", 1), lambda: live.join("board")):
            try:
                call()
            except onceward.OncewardError as error:
                print(error.code, flush=True)
        with client.live() as own:
            print(own.join("board").map("a").get("b"), flush=True)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    room.map("a").set("b", 2).wait()
"""


def test_a_connection_to_rooms_stays_with_its_process(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        assert run(LIVE, tmp_path, server.url) == ["forked", "forked", "None"]


ASYNCHRONOUS = """
import asyncio, os, sys
import onceward
from onceward.client import Client

app = onceward.App("sqlite:///app.db")

async def main():
    async with app, Client("http://127.0.0.1:9", patience_s=0) as client:
        pid = os.fork()
        if not pid:
            async def child():
                for call in (app.send("q", 1), app.locks.status("a"), app.start()):
                    try:
                        await call
                    except onceward.OncewardError as error:
                        print(error.code, flush=True)
                await app.stop()
                try:
                    await client.send("q", 1)
                except onceward.OncewardError as error:
                    print(error.code, flush=True)  # it tried to connect
            asyncio._set_running_loop(None)
            asyncio.run(child())
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        print((await app.send("q", 1)).state)

asyncio.run(main())
"""


def test_the_asynchronous_api_detects_a_fork_as_well(tmp_path: Path) -> None:
    assert run(ASYNCHRONOUS, tmp_path) == [
        *("forked", "forked", "forked", "engine_unreachable", "queued")
    ]


# As a WSGI application that starts when it is imported, which gunicorn does before it forks.
SHOP = """
import json, os
import onceward
from onceward.sync import App, Client

if os.environ["SHOP"].startswith("http"):
    shop = Client(os.environ["SHOP"])
    shop.send("orders", "at the import")
else:
    shop = App(os.environ["SHOP"]).start(work=False)

def web(environ, start):
    try:
        number = environ["PATH_INFO"].strip("/")
        said = {"job": shop.send("orders", number, key=number).id, "pid": os.getpid()}
        start("200 OK", [("Content-Type", "application/json")])
    except onceward.OncewardError as error:
        said = {"code": error.code, "detail": error.message}
        start("500 Internal Server Error", [("Content-Type", "application/json")])
    return [json.dumps(said).encode()]
"""


def shop(folder: Path, url: str) -> AbstractContextManager[str]:
    folder.joinpath("shop.py").write_text(SHOP)
    return gunicorn("shop:web", folder, SHOP=url)


def ask(url: str, number: int) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(f"{url}/{number}", timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            found = json.load(error)
    return found


def ask_all_workers(url: str) -> list[dict[str, Any]]:
    """40 orders, each sent to whichever worker takes it, until all four have answered."""
    answers: list[dict[str, Any]] = []
    with ThreadPoolExecutor(8) as pool:
        while len({one.get("pid") for one in answers}) < 4 and len(answers) < 4_000:
            answers += pool.map(lambda number: ask(url, number), range(40))
    return answers


def test_four_preloaded_workers_share_postgresql(tmp_path: Path, url: str) -> None:
    with shop(tmp_path, url) as address:
        answers = ask_all_workers(address)
    assert len({one["pid"] for one in answers}) == 4
    assert len({one["job"] for one in answers}) == 40
    with App(url) as app:
        assert app.send("orders", "7", key="7").duplicate


def test_four_preloaded_workers_use_a_server(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server, shop(tmp_path, server.url) as address:
        answers = ask_all_workers(address)
    assert len({one["pid"] for one in answers}) == 4
    assert len({one["job"] for one in answers}) == 40


def test_preloaded_workers_on_a_sqlite_file_are_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    with shop(tmp_path, url) as address, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: ask(address, number), range(40)))
    assert {one.get("code") for one in answers} == {"forked"}
    assert all("`Client`" in one["detail"] and "outbox" in one["detail"] for one in answers)
    with App(url) as app:  # the file is intact
        assert not app.send("orders", "7", key="7").duplicate
    assert os.path.getsize(tmp_path / "shop.db") > 0


# A handler of `onceward work` that forks a process, which uses the application.
FORKING = """
import multiprocessing, os
import onceward
from onceward.sync import App

app = App(os.environ["SHOP"])

@app.handler("numbers")
def double(job):
    child = multiprocessing.get_context("fork").Process(target=send, args=(job.body,))
    child.start()
    child.join()
    print("child", child.exitcode, app.job(job.id).state, flush=True)

def send(number):
    try:
        print("sent", app.send("results", number, key="result").state, flush=True)
    except onceward.OncewardError as error:
        print(error.code, flush=True)
"""


@pytest.mark.parametrize("engine", ["postgresql", "sqlite"])
def test_a_process_forked_by_a_handler_uses_what_the_database_allows(
    tmp_path: Path, url: str, engine: str
) -> None:
    (tmp_path / "shop.py").write_text(FORKING)
    url = url if engine == "postgresql" else f"sqlite:///{tmp_path}/shop.db"
    with App(url) as app:
        app.send("numbers", 1)
    with subprocess.Popen(
        [sys.executable, *QUIET, "-m", "onceward", "work", "shop:app"],
        cwd=tmp_path,
        env={**environment(), "SHOP": url},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            said = [process.stdout.readline() for _ in range(2)]
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
    first = "sent queued\n" if engine == "postgresql" else "forked\n"
    assert said == [first, "child 0 running\n"]
