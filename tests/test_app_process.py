"""The application as a process: it stops when told to, and its first example runs."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import onceward.app
from onceward.app import App

ROOT = Path(__file__).parent.parent

WORKING = """
import asyncio, sys
import onceward

app = onceward.App("sqlite:///app.db", drain_s=float(sys.argv[1]))

@app.handler("q", lease_s=5)
async def work(job):
    print("begun", flush=True)
    await asyncio.sleep(job.body)
    return "finished"

async def main():
    await app.start(work=False)
    await app.send("q", float(sys.argv[2]))
    await app.stop()

asyncio.run(main())
app.work()
print("stopped", flush=True)
"""


async def look(path: Path) -> list[tuple[str, str, int]]:
    """The queue, state and attempt of each job."""
    async with App(f"sqlite:///{path}") as app:
        jobs = []
        for slot in range(app.node.schedule.slots):
            rows = await app.store.run(lambda tx, slot=slot: tx.scan(f"job#{slot:04d}"))
            jobs += [row.value for row in rows if row.key[1].endswith("#job")]
    return [(job["queue"], job["stage"], job.get("attempt", 0)) for job in jobs]


@pytest.mark.parametrize(
    ("number", "drain_s", "work_s", "left"),
    [
        (signal.SIGTERM, 30, 0.3, ("q", "succeeded", 1)),
        (signal.SIGINT, 30, 0.3, ("q", "succeeded", 1)),
        (signal.SIGTERM, 0.1, 1_000, ("q", "ready", 0)),
    ],
)
def test_a_working_process_drains_when_it_is_told_to_stop(
    tmp_path: Path, number: signal.Signals, drain_s: float, work_s: float, left: Any
) -> None:
    (tmp_path / "worker.py").write_text(WORKING)
    with subprocess.Popen(
        [sys.executable, "worker.py", str(drain_s), str(work_s)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "begun\n"
            process.send_signal(number)
            said, complaints = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (said.splitlines()[-1], complaints, process.returncode) == ("stopped", "", 0)
    assert asyncio.run(look(tmp_path / "app.db")) == [left]


def test_a_second_signal_does_not_wait_for_handlers(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(WORKING)
    with subprocess.Popen(
        [sys.executable, "worker.py", "1000", "1000"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
        finally:
            process.kill()
    assert asyncio.run(look(tmp_path / "app.db")) == [("q", "ready", 0)]


PLAIN = """
import asyncio, os, sys, threading
import onceward

app = onceward.App("sqlite:///app.db")

@app.handler("q", lease_s=1)
def work(job):
    print("attempt", job.attempt, flush=True)
    job.step("first", print, "first")
    if job.attempt == 1:
        print("blocked", flush=True)
        threading.Event().wait()
    job.tx.put(("effect", job.id), job.attempt)
    return job.attempt

async def main():
    async with app:
        print((await app.wait((await app.send("q", None, key="one")).id)).result, flush=True)

asyncio.run(main())
"""


def test_a_plain_function_that_is_killed_is_run_again(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(PLAIN)

    def start() -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-u", "worker.py"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )

    with start() as process:
        assert process.stdout is not None
        try:
            shown = [process.stdout.readline() for _ in range(3)]
        finally:
            process.kill()
    assert shown == ["attempt 1\n", "first\n", "blocked\n"]
    with start() as process:
        try:
            said, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert said == "attempt 2\n2\n", "the recorded step was not run again"
    assert asyncio.run(look(tmp_path / "app.db")) == [("q", "succeeded", 2)]


def docstring() -> str:
    return (onceward.app.__doc__ or "").split("\n\n", 1)[1]


def test_the_example_of_the_docstring_runs_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "first.py").write_text(docstring())
    for _ in range(2):
        shown = subprocess.run(
            [sys.executable, "first.py"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=50,
        )
        assert (shown.stderr, shown.returncode) == ("", 0)
        assert shown.stdout == "Hello Ann\n", "the second time, too"
