"""Credit intake as it is deployed: a server of its own, real sockets, and a SOAP client that nobody
here wrote."""

import json
import os
import re
import socket
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest
import zeep

from apps.credit.__main__ import main as credit_main
from apps.credit.bureau import make_report
from apps.credit.outbound import write
from apps.credit.soap import ACK
from onceward import limits
from onceward.errors import OncewardError
from tests.apps.credit.envelopes import BAD, ORGANISATION, envelope, notification, opportunity
from tests.apps.credit.office import SECRET
from tests.cli.commands import Command
from tests.server_process import ServerProcess

pytestmark = [pytest.mark.credit, pytest.mark.timeout(900)]

SOAP = f"/credit/soap/{SECRET}"
HEADERS = {"Content-Type": "text/xml; charset=utf-8", "SOAPAction": '""'}
# What may come and go; a body that was kept would be many times as large.
GROWTH_BYTES_MAX = 48 << 20
REPORT = msgspec.json.encode(make_report("006", "B7"))

_numbers = count(1_000)


class World(BaseHTTPRequestHandler):
    """A bureau whose answers are known, and a Salesforce that hears all."""

    statuses: dict[str, int] = {}  # noqa: RUF012 - of the next pull of each; then it goes well
    pulls: list[str] = []  # noqa: RUF012
    results: list[Any] = []  # noqa: RUF012

    def do_POST(self) -> None:
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, answer = 200, REPORT
        if self.path == "/bureau":
            World.pulls.append(said["reference"])
            status = World.statuses.pop(said["reference"], 200)
        else:
            World.results.append(said)
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def world() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), World) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def server(world: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("credit")
    with pytest.MonkeyPatch.context() as patched:
        for name, text in {
            "DATABASE": f"sqlite:///{folder}/credit.db",
            "ORGANISATIONS": ORGANISATION,
            "SECRET": SECRET,
            "BUREAU": f"{world}/bureau",
            "SALESFORCE": f"{world}/salesforce",
            "DECIDE": "apps.credit.decision:decide",
            "RETRY_FIRST_S": "0.01",
        }.items():
            patched.setenv(f"CREDIT_{name}", text)
        with ServerProcess(folder, "--app", "apps.credit.deployed:app") as server:
            yield server


def post(server: ServerProcess, body: bytes) -> tuple[int, bytes]:
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        connection.request("POST", SOAP, body, HEADERS)
        answer = connection.getresponse()
        return answer.status, answer.read()


def peak_bytes(server: ServerProcess) -> int:
    status = Path(f"/proc/{server.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def test_a_client_of_others_is_acknowledged(server: ServerProcess) -> None:
    client = zeep.Client(f"{server.url}{SOAP}?wsdl")
    kind = client.get_type("{urn:sobject.enterprise.soap.sforce.com}Opportunity")
    number = next(_numbers)
    records = [
        {
            "Id": f"04l{n:012d}",
            "sObject": kind(Id=opportunity(n), Name="Ann & Bob <both>", Amount=12.5),
        }
        for n in range(number, number + 100)
    ]
    message = {
        "OrganizationId": ORGANISATION,
        "ActionId": "04k000000000001",
        "SessionId": "a session",
        "EnterpriseUrl": "https://example.com",
        "PartnerUrl": "https://example.com",
    }
    assert client.service.notifications(**message, Notification=records) is True
    # A sender that repeats what was acknowledged in time is told of as such.
    assert client.service.notifications(**message, Notification=records) is True
    said = credit_command(server).said("senders")
    assert "(maximum)" in said
    assert "acknowledged 100" in said
    path = f"/credit/applications/{ORGANISATION}/{opportunity(number)}"
    shown = get(server, path)
    fields = shown["application"]["fields"]
    assert fields == {"Id": opportunity(number), "Name": "Ann & Bob <both>", "Amount": "12.5"}
    # What is refused is a fault that others understand.
    with pytest.raises(zeep.exceptions.Fault, match="organisation"):
        client.service.notifications(
            **{**message, "OrganizationId": "00D000000000002"}, Notification=records[:1]
        )
    broken = {"Id": "04l000000000001", "sObject": kind(Id="006000000000001XYZ")}
    with pytest.raises(zeep.exceptions.Fault, match="damaged"):
        client.service.notifications(**message, Notification=[broken])


@pytest.mark.parametrize(
    "name", ["nested for ever", "nested for ever in a field", "a billion laughs", "too many bytes"]
)
def test_an_envelope_that_is_an_attack_takes_no_memory(server: ServerProcess, name: str) -> None:
    before_bytes = peak_bytes(server)
    for _ in range(10):
        status, answer = post(server, BAD[name])
        assert (status, b"soapenv:Fault" in answer) == (400, True)
    assert peak_bytes(server) - before_bytes < GROWTH_BYTES_MAX
    assert post(server, envelope(1)) == (200, ACK)


def test_a_body_that_is_far_too_large_is_refused_before_it_has_come(
    server: ServerProcess, soak: bool
) -> None:
    size_bytes = 1 << 30 if soak else 2 * limits.SENT_BYTES_MAX
    before_bytes = peak_bytes(server)
    # It says how large it is: it need not even begin.
    with socket.create_connection(("127.0.0.1", server.port), 60) as connection:
        head = f"POST {SOAP} HTTP/1.1\r\nHost: x\r\nContent-Length: {size_bytes}\r\n"
        connection.sendall(f"{head}Content-Type: text/xml\r\n\r\n<".encode())
        assert connection.recv(65_536).startswith(b"HTTP/1.1 400 ")
    # It does not say so: it is cut off on the way.
    sent_bytes = _stream(server, size_bytes)
    assert sent_bytes < size_bytes
    assert peak_bytes(server) - before_bytes < GROWTH_BYTES_MAX
    assert post(server, envelope(1)) == (200, ACK)


def _stream(server: ServerProcess, size_bytes: int) -> int:
    """Send a body in chunks, whatever is answered; how much of it went."""
    piece = b"10000\r\n" + b" " * (1 << 16) + b"\r\n"
    sent_bytes = 0
    with socket.create_connection(("127.0.0.1", server.port), 60) as connection:
        head = f"POST {SOAP} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())
        try:
            while sent_bytes < size_bytes:
                connection.sendall(piece)
                sent_bytes += 1 << 16
        except (ConnectionError, TimeoutError):
            pass
    return sent_bytes


def test_a_case_in_doubt_is_settled_by_a_person(server: ServerProcess) -> None:
    command, credit = Command(server), credit_command(server)
    number = next(_numbers) + 1_000
    World.statuses[opportunity(number)] = 500
    assert post(server, envelope(number)) == (200, ACK)
    place = f"/credit/applications/{ORGANISATION}/{opportunity(number)}"
    id_, state = _ended(server, place)
    assert state == "in_doubt"
    shown = command.said("queues", "failed", "credit")
    assert id_ in shown
    assert "may or may not have been done" in shown.replace("\n", " ").replace("  ", " ")
    assert World.pulls.count(opportunity(number)) == 1
    # To redrive it settles nothing, and that is what the command reports.
    said = command.said("queues", "redrive", "credit")
    assert said.startswith("1 job retried\nJobs with steps in doubt: 1.")
    assert _ended(server, place) == (id_, "in_doubt")
    shown = credit.said("show", ORGANISATION, opportunity(number))
    assert "the bureau responded with 500" in " ".join(shown.split())
    [status] = [one for one in World.results if one["opportunity"] == opportunity(number)]
    assert (status["kind"], status["value"]["state"]) == ("status", "in_doubt")
    assert "the bureau responded with 500" in status["value"]["reason"]
    # The bureau's office knows of the pull: so its report is entered.
    settle = ("settle", ORGANISATION, opportunity(number), "--reason", "ticket 7")
    line, _ = credit.refused(*settle, "--done", '{"number": "B7"}')
    assert "invalid report" in line
    said = credit.said(*settle, "--done", REPORT.decode())
    assert said == f"Settled {id_} as made: ticket 7\n"
    assert _ended(server, place) == (id_, "succeeded")
    assert World.pulls.count(opportunity(number)) == 1
    assert command.listed("queues", "failed", "credit") == ("", "No failed jobs in 'credit'.\n")
    shown = credit.said("show", ORGANISATION, opportunity(number))
    assert "B7" in shown
    assert "as done by" in shown
    assert "ticket 7" in shown
    assert "pull: done, by" in command.said("jobs", "get", id_)

    # What came later is shown beside it.
    fresher = [notification(number, "04l000000099999", Name="Another")]
    assert post(server, write(ORGANISATION, fresher)) == (200, ACK)
    shown = credit.said("show", ORGANISATION, opportunity(number))
    assert "other fields arrived (no action)" in shown
    assert "Another" in shown

    # On purpose, and with a reason, it is pulled again.
    again = ("pull-again", ORGANISATION, opportunity(number), "--reason", "wrong address")
    assert credit.said(*again, "--key", "ticket-9").startswith("Requested ")
    assert credit.json(*again, "--key", "ticket-9")["reason"] == "wrong address"
    second, state = _ended(server, place, pulls=2)
    assert (second != id_, state) == (True, "succeeded")
    assert World.pulls.count(opportunity(number)) == 2
    shown = credit.said("show", ORGANISATION, opportunity(number))
    assert "wrong address" in shown
    found = credit.json("show", ORGANISATION, opportunity(number))
    assert found["states"] == ["succeeded", "succeeded"]
    line, code = credit.refused("show", ORGANISATION, opportunity(9))
    assert (line.endswith("[no_such_job]"), code) == (True, 2)


def credit_command(server: ServerProcess) -> Command:
    return Command(server, credit_main, "apps.credit")


def get(server: ServerProcess, path: str) -> Any:
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=90)) as connection:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())


def _ended(server: ServerProcess, place: str, pulls: int = 1) -> tuple[str, str]:
    """The job of the last pull of an application, and its state once it has ended."""
    found = get(server, place)["application"]["pulls"]
    assert len(found) == pulls
    id_: str = found[-1]["job"]
    return id_, get(server, f"/v1/jobs/{id_}?wait_ms=60000")["state"]


def test_settings_that_are_missing_are_told_of(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patched:
        for name in list(os.environ):
            if name.startswith("CREDIT_"):
                patched.delenv(name)
        with pytest.raises(OncewardError, match="CREDIT_"):
            __import__("apps.credit.deployed")
