"""The sample applications of frameworks pass their own tests."""

import signal
import subprocess
import sys
from pathlib import Path

from onceward.sync import App
from tests.needs import need
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
