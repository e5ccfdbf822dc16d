"""Requests made up from the OpenAPI document: no answer is a failure of the server, and none is
missing in the document."""

import os
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.web.test_openapi import DOCUMENT
from tests.web.wire import start

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
SOAK = os.environ.get("ONCEWARD_SOAK") == "1"
WAIT_MS = 5

pytestmark = [pytest.mark.openapi, pytest.mark.no_cover]

API = schemathesis.openapi.from_dict(DOCUMENT)
API.config.generation.update(modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE])

# The same requests every time, but for a long run.
bounded = settings(
    max_examples=500 if SOAK else 5,
    derandomize=not SOAK,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


class Site:
    """A real server, and calls to it on one connection."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.session = requests.Session()
        self._numbers = count()

    def check(self, case: Case) -> None:
        _do_not_wait_long(case)
        response = case.call(base_url=self.url, session=self.session)
        case.validate_response(response, checks=CHECKS)

    def post(self, path: str, body: Any) -> Any:
        answer = self.session.post(self.url + path, json=body)
        assert answer.status_code in (200, 202), answer.text
        return answer.json()

    def job(self) -> dict[str, Any]:
        """A new job that is being worked on, or has failed."""
        number = next(self._numbers)
        queue = f"known{number}"
        self.post(f"/v1/inbox/{queue}", {"body": number, "key": "k"})
        [job] = self.post(f"/v1/queues/{queue}/claim", {"lease_ms": 600_000})["jobs"]
        if number % 3 == 0:
            said = {"token": job["token"], "reason": "x", "final": True}
            self.post(f"/v1/jobs/{job['id']}/fail", said)
        return dict(job)

    def timer(self) -> str:
        """The id of a new timer, whose job may have died already."""
        number = next(self._numbers)
        id_ = f"known{number}"
        delay_ms = 0 if number % 2 else 60_000
        self.post("/v1/timers", {"id": id_, "queue": id_, "delay_ms": delay_ms})
        if not delay_ms:
            asked = {"lease_ms": 600_000, "wait_ms": 10_000}
            [job] = self.post(f"/v1/queues/{id_}/claim", asked)["jobs"]
            said = {"token": job["token"], "reason": "x", "final": True}
            self.post(f"/v1/jobs/{job['id']}/fail", said)
        return id_

    def endpoint(self) -> str:
        """The id of a new endpoint."""
        id_ = f"known{next(self._numbers)}"
        self.post("/v1/endpoints", {"id": id_, "url": "https://nowhere.invalid"})
        return id_

    def room(self) -> str:
        """The id of a new room, with something in it."""
        id_ = f"known{next(self._numbers)}"
        self.post("/v1/rooms", {"id": id_})
        ops = [{"op": "map.make", "map": "it"}, {"op": "list.make", "list": "it"}]
        self.post(f"/v1/rooms/{id_}/ops", {"ops": ops})
        return id_

    def table(self) -> str:
        """The id of a new table, at which a game is on."""
        id_ = f"known{next(self._numbers)}"
        self.post("/v1/tables", {"id": id_})
        for user in ("ann", "ben", "developer"):
            self.post(f"/v1/tables/{id_}/join", {"user": user})
        return id_

    def lock(self) -> dict[str, Any]:
        """A new lock that is held."""
        name = f"known{next(self._numbers)}"
        return {"name": name, **self.post("/v1/locks/acquire", {"names": [name]})}


def _do_not_wait_long(case: Case) -> None:
    for members in (case.query, case.body):
        # Numbers of a query can be text.
        if isinstance(members, dict) and str(members.get("wait_ms")).isdecimal():
            members["wait_ms"] = min(int(members["wait_ms"]), WAIT_MS)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    process, port = start(
        tmp_path_factory.mktemp("served"), "--database", "memory://", "--no-webhooks"
    )
    site = Site(port)
    yield site
    site.session.close()
    process.terminate()
    # To the end it has answered, and has had no bug to log.
    assert process.communicate(timeout=30)[1] == ""
    assert process.returncode == 0


# What is done at tables is much the same: all of it is for long runs.
@(API if SOAK else API.exclude(path_regex=r"/v1/(tables/\{id\}/|ladders)")).parametrize()
@bounded
def test_every_answer_is_in_the_document(case: Case, site: Site) -> None:
    site.check(case)


@API.include(path_regex=r"/v1/jobs/\{id\}").parametrize()
@bounded
def test_every_answer_about_a_job_that_is_there_is_in_the_document(case: Case, site: Site) -> None:
    job = site.job()
    case.path_parameters = {"id": job["id"]}
    if isinstance(case.body, dict) and "token" in case.body:
        case.body["token"] = job["token"]
    site.check(case)


@API.include(path_regex=r"/timers/\{id\}").parametrize()
@bounded
def test_every_answer_about_a_timer_that_is_there_is_in_the_document(
    case: Case, site: Site
) -> None:
    case.path_parameters = {"id": site.timer()}
    site.check(case)


@API.include(path_regex=r"/v1/endpoints/\{id\}").parametrize()
@bounded
def test_every_answer_about_an_endpoint_that_is_there_is_in_the_document(
    case: Case, site: Site
) -> None:
    case.path_parameters = {**case.path_parameters, "id": site.endpoint()}
    site.check(case)


@API.include(path_regex=r"/v1/locks/").parametrize()
@bounded
def test_every_answer_about_a_lock_that_is_held_is_in_the_document(case: Case, site: Site) -> None:
    lock = site.lock()
    if case.path_parameters:
        case.path_parameters = {"name": lock["name"]}
    if isinstance(case.body, dict) and "id" in case.body:
        case.body["id"] = lock["id"]
    if isinstance(case.body, dict) and "names" in case.body:
        case.body["names"] = [lock["name"]]
    site.check(case)


# Those about rooms that are not there take long enough: the others are for long runs.
@(API.include(path_regex=r"/v1/rooms/\{id\}" if SOAK else r"/v1/rooms/\{id\}$").parametrize())
@bounded
def test_every_answer_about_a_room_that_is_there_is_in_the_document(case: Case, site: Site) -> None:
    names = {"name": "it"} if "name" in case.path_parameters else {}
    case.path_parameters = {"id": site.room(), **names}
    site.check(case)


@API.include(
    path_regex=r"/v1/tables/\{id\}" if SOAK else r"/v1/tables/\{id\}/(join|move)$"
).parametrize()
@bounded
def test_every_answer_about_a_table_that_is_there_is_in_the_document(
    case: Case, site: Site
) -> None:
    case.path_parameters = {"id": site.table()}
    site.check(case)
