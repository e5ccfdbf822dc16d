"""The extension for Flask: configuration, contexts, and the command for workers."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from onceward import BadInput, SyncJob
from onceward.integrations.flask import Onceward
from onceward.sync import App
from tests.needs import need
from tests.server_process import ServerProcess, environment

flask = need("flask")


def extension() -> Onceward:
    """With handlers of both kinds, which use the context of the Flask application."""
    jobs = Onceward()
    jobs.queue("names", attempts_max=1)
    jobs.every(3600, "names", "hourly")
    jobs.cron("0 7 * * *", "names", "daily", name="mornings")

    @jobs.handler("names")
    def name(job: SyncJob[str]) -> str:
        return f"{flask.current_app.name} {job.body}"

    @jobs.handler("async")
    async def later(job: Any) -> str:
        return f"{flask.current_app.name} {job.body}"

    jobs.handler("more")(name)
    return jobs


@contextmanager
def site(jobs: Onceward, **config: Any) -> Iterator[Any]:
    web = flask.Flask("shop")
    web.config.update({"ONCEWARD_DATABASE": "memory://", "ONCEWARD_WORK": True, **config})
    jobs.init_app(web)
    with web.app_context():
        yield web
        jobs.site.close()


def test_handlers_run_in_the_context_of_the_application() -> None:
    jobs = extension()
    with site(jobs):
        for queue in ("names", "async", "more"):
            assert jobs.app.result(jobs.send(queue, "ann", key="1").id) == "shop ann"
        assert jobs.send("names", "ann", key="1").duplicate
        assert [one.id for one in jobs.app.timers.find()] == ["every:mornings", "every:names"]


def test_applications_of_one_factory_have_their_own_databases() -> None:
    jobs = extension()
    with site(jobs):
        assert not jobs.send("names", "ann", key="1").duplicate
    with site(jobs):
        assert not jobs.send("names", "ann", key="1").duplicate


def test_it_starts_on_first_use_and_again_after_it_was_closed() -> None:
    jobs = extension()
    with site(jobs):
        first = jobs.site
        assert jobs.app is jobs.app
        first.close()
        first.close()
        assert jobs.app.result(jobs.send("names", "ann").id) == "shop ann"


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"ONCEWARD_DATABASE": ""}, "either ONCEWARD_DATABASE .* neither is set"),
        ({"ONCEWARD_SERVER": "http://localhost"}, "ONCEWARD_SERVER, .* both are set"),
        ({"ONCEWARD_DATABASE": "mysql://x"}, "unsupported database URL"),
        ({"ONCEWARD_DATABASE": "", "ONCEWARD_SERVER": "localhost"}, "unsupported URL"),
        ({"ONCEWARD_WORK": "False"}, "ONCEWARD_WORK must be True or False, not 'False'"),
    ],
    ids=["nothing", "both", "another database", "no server", "a text for a boolean"],
)
def test_a_wrong_configuration_is_refused_at_once(config: dict[str, Any], why: str) -> None:
    with pytest.raises(BadInput, match=why), site(Onceward(), **config):
        pass


def test_what_is_missing_is_named() -> None:
    jobs = Onceward()
    with pytest.raises(BadInput, match="no current Flask application"):
        _ = jobs.app
    with flask.Flask("bare").app_context(), pytest.raises(BadInput, match="call `init_app`"):
        jobs.send("q", 1)
    with site(jobs) as web:
        with pytest.raises(BadInput, match="already has the extension"):
            jobs.init_app(web)
        with pytest.raises(BadInput, match="no server in the settings"):
            _ = jobs.client
        late: Any = jobs.handler("late")(lambda job: None)
        with pytest.raises(BadInput, match="'late' was declared too late; import its module"):
            late.enqueue(1)
    with pytest.raises(BadInput, match="already has the extension"):
        Onceward(web)


def test_jobs_are_sent_to_a_server(tmp_path: Path) -> None:
    jobs = Onceward()

    @jobs.handler("names")
    def name(job: SyncJob[dict[str, str]]) -> None: ...

    with (
        ServerProcess(tmp_path) as server,
        site(jobs, ONCEWARD_DATABASE="", ONCEWARD_SERVER=server.url) as web,
    ):
        receipt = name.enqueue({"name": "ann"}, key="1", priority=3)
        assert jobs.send("names", {"name": "ann"}, key="1").duplicate
        assert jobs.client.jobs.get(receipt.id).priority == 3
        for wrong, why in (
            (lambda: jobs.app, "no database in the settings"),
            (lambda: name.result(receipt.id), "no database in the settings"),
            (lambda: jobs.send("q", 1, tx=3), "cannot be part of a transaction"),  # type: ignore[arg-type]
        ):
            call: Callable[[], Any] = wrong
            with pytest.raises(BadInput, match=why):
                call()
        done = web.test_cli_runner().invoke(args=["onceward", "work"])
        assert (done.exit_code, "handlers need ONCEWARD_DATABASE" in done.output) == (1, True)


def test_the_command_reports_a_database_that_cannot_be_opened(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/nowhere/app.db"
    with site(extension(), ONCEWARD_DATABASE=url) as web:
        done = web.test_cli_runner().invoke(args=["onceward", "work"])
    assert (done.exit_code, "nowhere does not exist" in done.output) == (70, True)
    assert "Traceback" not in done.output


SHOP = """
from flask import Flask
from onceward.integrations.flask import Onceward

jobs = Onceward()

@jobs.handler("numbers")
def double(job):
    print("doubled", job.body * 2, flush=True)

def create_app():
    web = Flask(__name__)
    web.config["ONCEWARD_DATABASE"] = "sqlite:///app.db"
    jobs.init_app(web)
    return web
"""


def test_the_command_runs_handlers_until_it_is_told_to_stop(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    with App(f"sqlite:///{tmp_path}/app.db") as app:
        app.send("numbers", 4)
    with subprocess.Popen(
        [sys.executable, "-m", "flask", "--app", "shop", "onceward", "work"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = {process.stdout.readline() for _ in range(2)}
        process.send_signal(signal.SIGTERM)
        _, complaints = process.communicate(timeout=60)
    assert (lines, complaints) == ({"doubled 8\n", "working; Ctrl-C stops it\n"}, "")
    assert process.returncode == 0
