"""The sample applications of frameworks pass their own tests."""

import json
import signal
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from onceward.sync import App
from tests.needs import need
from tests.preloaded import gunicorn
from tests.server_process import ROOT, environment

DJANGO = ROOT / "examples" / "django_shop"


def test_the_shop_in_django() -> None:
    """With the tasks of Django 6 where it is installed: on Python 3.12 and newer."""
    django = need("django")
    done = subprocess.run(
        [sys.executable, "-W", "error", "manage.py", "test"],
        cwd=DJANGO,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Ran 13 tests" in done.stderr
    skipped = "OK (skipped=4)" in done.stderr
    assert skipped is (django.VERSION < (6,)), done.stderr


def test_the_command_of_django_runs_handlers(tmp_path: Path) -> None:
    need("django")
    url = f"sqlite:///{tmp_path}/jobs.db"
    with App(url) as app:
        id_ = app.send("payments", {"number": "7", "item": "lamp"}).id
    with subprocess.Popen(
        [sys.executable, "manage.py", "onceward_work"],
        cwd=DJANGO,
        env={**environment(), "ONCEWARD_DATABASE": url, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, complaints = process.communicate(timeout=60)
    assert (said, complaints, process.returncode) == ("working; Ctrl-C stops it\n", "", 0)
    with App(url) as app:
        assert app.job(id_).state in ("succeeded", "queued")  # it may have been stopped before


def test_the_shop_in_flask() -> None:
    need("flask")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "examples/flask_shop"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


# The shop, which writes each charge to a file.
COUNTED = """
import os
from examples.flask_shop import shop

def charge(item, request_id):
    with open(os.environ["CHARGES"], "a") as charges:
        charges.write(f"{item}\\n")
    return f"receipt {request_id}"

shop.charge = charge
create_app = shop.create_app
"""


def test_preloaded_workers_of_the_shop_in_flask_accept_each_order_once(
    tmp_path: Path, url: str
) -> None:
    """Four threads send 50 requests each to four processes; another process pays the orders."""
    need("flask")
    (tmp_path / "counted.py").write_text(COUNTED)
    charges = tmp_path / "charges"
    variables = {"ONCEWARD_DATABASE": url, "CHARGES": str(charges)}
    with App(url) as app:
        with gunicorn("counted:create_app()", tmp_path, **variables) as address:

            def put(number: int) -> tuple[int, str]:
                asked = urllib.request.Request(
                    f"{address}/orders/{number}",
                    data=json.dumps({"item": f"item {number}"}).encode(),
                    headers={"Content-Type": "application/json"},
                    method="PUT",
                )
                with urllib.request.urlopen(asked, timeout=60) as answer:
                    return answer.status, json.load(answer)["job"]

            with ThreadPoolExecutor(4) as pool:
                # Each order is sent twice, by different threads.
                answers = list(pool.map(put, [number % 100 for number in range(200)]))
        command = [sys.executable, "-m", "flask", "--app", "counted", "onceward", "work"]
        with subprocess.Popen(command, cwd=tmp_path, env={**environment(), **variables}) as process:
            try:
                ids = [id_ for _, id_ in answers]
                results = [app.result(id_, str, timeout_s=100) for id_ in ids]
                process.terminate()
                assert process.wait(60) == 0
            finally:
                process.kill()
        paid = app.run(lambda tx: [tx.get(("orders", str(number))) for number in range(100)])
    assert [status for status, _ in answers] == [202] * 200
    assert len(set(ids)) == 100
    assert results == [f"receipt {id_}" for id_ in ids]
    assert [one["item"] for one in paid] == [f"item {number}" for number in range(100)]
    assert sorted(charges.read_text().splitlines()) == sorted(f"item {n}" for n in range(100))
