"""The endpoint acknowledges what is durable, and answers all else as the sender expects it."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from xml.etree import ElementTree

import pytest

from apps.credit import soap
from apps.credit.intake import Intake
from onceward.errors import BadInput, Unavailable
from onceward.web.connections import Connections
from tests.apps.credit.envelopes import BAD, GOOD, ORGANISATION, SESSION, envelope, opportunity
from tests.apps.credit.office import SECRET, World, make
from tests.schedule.cluster import virtual
from tests.web.asgi import Answer, Caller, keyed, serving
from tests.work.apps import Apps

SOAP = f"/credit/soap/{SECRET}"
XML = [("Content-Type", "text/xml; charset=utf-8")]
PLACE = f"/credit/applications/{ORGANISATION}/{opportunity(1)}"
CERTIFICATE = "X-Client-Certificate-SHA256"
PROXY = ("10.0.0.7", 5)
KEPT = ("inbox#", "job#", "ready#", "due#", "credit", "failed#")


@asynccontextmanager
async def office(
    patched: pytest.MonkeyPatch, auth: Any = None, **changes: Any
) -> AsyncIterator[tuple[Apps, Caller]]:
    World(patched)
    apps = Apps(shared=False)
    credit = make(apps, **changes)
    Intake(credit)
    async with serving(credit.app, auth) as caller:
        yield apps, caller


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    return monkeypatch


def stored(apps: Apps) -> list[Any]:
    return [key for key in [*apps.own, *apps.records] if key[0].startswith(KEPT)]


async def post(
    caller: Caller, body: bytes, path: str = SOAP, headers: Any = XML, **scope: Any
) -> Answer:
    return await caller("POST", path, raw=body, headers=headers, **scope)


def is_ack(answer: Answer) -> bool:
    return answer.status == 200 and b"<Ack>true</Ack>" in answer.body


def fault_of(answer: Answer) -> str:
    """What a SOAP fault says; there is no acknowledgement in it."""
    assert answer.headers["content-type"] == "text/xml; charset=utf-8"
    assert b"Ack" not in answer.body
    root = ElementTree.fromstring(answer.body)
    [fault] = root.iter(f"{{{soap.SOAP}}}Fault")
    said = fault.findtext("faultstring")
    assert said
    return said


@virtual
async def test_a_message_is_acknowledged_and_durable(patched: pytest.MonkeyPatch) -> None:
    async with office(patched, work=False) as (apps, caller):
        for _ in range(3):
            assert is_ack(await post(caller, GOOD))
        assert len([key for key in stored(apps) if key[0].startswith("inbox#")]) == 1
        shown = await caller.ok("GET", PLACE)
        assert shown["application"]["fields"]["Name"] == "Applicant 1"
        assert shown["states"] == ["queued"]
        metrics = (await caller("GET", "/metrics")).body.decode()
        for why, count in (("first", 1), ("redelivered", 2)):
            labels = f'organisation="{ORGANISATION}",why="{why}"'
            assert f"onceward_credit_notifications_total{{{labels}}} {count}\n" in metrics
        assert f'credit_ack_seconds_count{{organisation="{ORGANISATION}"}} 3' in metrics


@pytest.mark.parametrize("name", BAD)
@virtual
async def test_a_bad_envelope_is_a_fault_and_nothing_is_stored(
    patched: pytest.MonkeyPatch, name: str
) -> None:
    async with office(patched) as (apps, caller):
        answer = await post(caller, BAD[name])
        assert answer.status == 400
        fault_of(answer)
        assert stored(apps) == []


@virtual
async def test_another_organisation_is_refused_and_nothing_is_stored(
    patched: pytest.MonkeyPatch,
) -> None:
    async with office(patched) as (apps, caller):
        answer = await post(caller, envelope(1, 2, organisation="00D000000000002EAA"))
        assert answer.status == 403
        assert "organisation" in fault_of(answer)
        assert stored(apps) == []


@virtual
async def test_who_does_not_know_the_secret_finds_nothing(patched: pytest.MonkeyPatch) -> None:
    async with office(patched) as (apps, caller):
        wrong = ("/credit/soap/wrong", "/credit/soap/", "/credit/soap", f"{SOAP}x", f"{SOAP}/x")
        for path in wrong:
            assert (await post(caller, GOOD, path)).status == 404, path
            assert (await caller("GET", path)).status == 404, path
        assert (await caller("PUT", SOAP, raw=GOOD, headers=XML)).status == 405
        assert stored(apps) == []


@pytest.mark.parametrize("secret", [SECRET, ""])
@virtual
async def test_a_client_certificate_tells_the_sender(
    patched: pytest.MonkeyPatch, secret: str
) -> None:
    certificates = (":".join(["AB"] * 32), "cd" * 32)
    path = SOAP if secret else "/credit/soap"
    async with office(patched, secret=secret, certificates=certificates) as (apps, caller):
        caller.server.connections = Connections(proxies=["10.0.0.0/8"])
        for told in (None, "", "ab", "ef" * 32, "ä"):
            headers = [*XML, *([(CERTIFICATE, told)] if told is not None else [])]
            answer = await post(caller, GOOD, path, headers, client=PROXY)
            assert answer.status == 403
            fault_of(answer)
        assert stored(apps) == []
        for told in ("ab" * 32, "AB" * 32, ":".join(["cd"] * 32)):
            headers = [*XML, (CERTIFICATE, told)]
            assert is_ack(await post(caller, GOOD, path, headers, client=PROXY))
        twice = [*XML, *[(CERTIFICATE, "ab" * 32)] * 2]
        assert (await post(caller, GOOD, path, twice, client=PROXY)).status == 400


@virtual
async def test_only_proxies_are_believed_about_client_certificates(
    patched: pytest.MonkeyPatch,
) -> None:
    headers = [*XML, (CERTIFICATE, "ab" * 32)]
    async with office(patched, certificates=("ab" * 32,), work=False) as (apps, caller):
        for proxies in ([], ["10.0.0.7", "2001:db8::/32"]):
            caller.server.connections = Connections(proxies=proxies)
            for peer in ("10.0.0.8", "127.0.0.1", "::1", "192.0.2.1", "proxy.example", "", None):
                client = None if peer is None else (peer, 5)
                answer = await post(caller, GOOD, headers=headers, client=client)
                assert answer.status == 403, peer
                assert "`proxies`" in fault_of(answer)
                assert (await caller("GET", SOAP, headers=headers, client=client)).status == 403
        assert stored(apps) == []
        for peer in ("10.0.0.7", "::ffff:10.0.0.7", "2001:db8::1"):
            assert is_ack(await post(caller, GOOD, headers=headers, client=(peer, 5))), peer


@virtual
async def test_what_does_not_say_that_it_is_xml_is_refused(patched: pytest.MonkeyPatch) -> None:
    async with office(patched) as (apps, caller):
        answer = await post(caller, GOOD, headers=[("Content-Type", "application/json")])
        assert answer.status == 400
        assert "text/xml" in fault_of(answer)
        assert stored(apps) == []


@virtual
async def test_the_session_is_neither_stored_nor_logged(
    patched: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with office(patched, work=False) as (apps, caller):
        assert SESSION.encode() in GOOD
        assert is_ack(await post(caller, GOOD))
        await post(caller, GOOD[:-20])
        await post(caller, envelope(organisation="00D000000000002EAA"))
        assert (await caller.ok("GET", PLACE))["states"] == ["queued"]
        assert all(SESSION.encode() not in record.value for record in apps.records.values())
        assert "rejected" in caplog.text
        assert SESSION not in caplog.text
        assert SECRET not in caplog.text


@virtual
async def test_what_cannot_be_stored_is_not_acknowledged(
    patched: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with office(patched, work=False) as (apps, caller):

        async def fail(*_: Any, **__: Any) -> None:
            raise Unavailable("postgresql://user@host is away")

        patched.setattr(caller.app.store, "run", fail)
        answer = await post(caller, GOOD)
        assert answer.status == 503
        assert "host" not in fault_of(answer)
        assert "host" in caplog.text
        patched.undo()
        assert stored(apps) == []


@virtual
async def test_a_body_too_large_to_be_read_is_a_fault(patched: pytest.MonkeyPatch) -> None:
    async with office(patched) as (_, caller):
        error = BadInput("at most 8 MB", code="body_too_large")
        response = caller.server.refusal({"raw_path": SOAP.encode()}, error)
        assert response.status == 400
        assert b"soapenv:Client" in response.body


@virtual
async def test_the_endpoint_describes_itself(patched: pytest.MonkeyPatch) -> None:
    async with office(patched) as (_, caller):
        answer = await caller("GET", f"{SOAP}?wsdl=")
        assert address(answer) == f"http://127.0.0.1:8080{SOAP}"


def address(answer: Answer) -> str | None:
    """Where the service is, by its WSDL."""
    root = ElementTree.fromstring(answer.body)
    [found] = root.iter("{http://schemas.xmlsoap.org/wsdl/soap/}address")
    return found.get("location")


@virtual
async def test_the_wsdl_is_for_those_with_a_certificate(patched: pytest.MonkeyPatch) -> None:
    async with office(patched, secret="", certificates=("ab" * 32,)) as (_, caller):
        caller.server.connections = Connections(proxies=["10.0.0.0/8"])
        for headers in ([], [(CERTIFICATE, "cd" * 32)]):
            answer = await caller("GET", "/credit/soap", headers=headers, client=PROXY)
            assert answer.status == 403
            fault_of(answer)
        answer = await caller(
            "GET", "/credit/soap", headers=[(CERTIFICATE, "ab" * 32)], client=PROXY
        )
        assert address(answer) == "http://127.0.0.1:8080/credit/soap"


@virtual
async def test_the_wsdl_believes_only_proxies_about_the_scheme(
    patched: pytest.MonkeyPatch,
) -> None:
    async with office(patched) as (_, caller):
        caller.server.connections = Connections(proxies=["10.0.0.0/8"])
        for client, told, scheme in (
            (PROXY, "https", "https"),
            (PROXY, "HTTPS", "https"),
            (PROXY, "http, https", "https"),
            (PROXY, "gopher", "http"),
            (PROXY, "", "http"),
            (("127.0.0.1", 5), "https", "http"),
            (("192.0.2.1", 5), "https", "http"),
            (None, "https", "http"),
        ):
            headers = [("X-Forwarded-Proto", told)] if told else []
            answer = await caller("GET", SOAP, headers=headers, client=client)
            assert address(answer) == f"{scheme}://127.0.0.1:8080{SOAP}", (client, told)


@virtual
async def test_a_second_pull_is_asked_for_with_a_reason(patched: pytest.MonkeyPatch) -> None:
    auth, keys = keyed(ann="manage:credit", bob="send:credit")
    async with office(patched, auth) as (apps, nobody):
        await post(nobody, GOOD)
        ann, bob = (Caller(nobody.server, keys[name]) for name in ("ann", "bob"))
        path, key = f"{PLACE}/pulls", [("Idempotency-Key", "ticket-7")]
        why = {"reason": "the address was wrong"}
        for caller, status in ((nobody, 401), (bob, 403)):
            assert (await caller("GET", PLACE)).status == status
            assert (await caller("POST", path, why, headers=key)).status == status
        while (await ann.ok("GET", PLACE))["states"] != ["succeeded"]:
            await apps.sleep(1)
        for body, headers, verdict in (
            (why, [], (422, "missing_key")),
            (why, [("Idempotency-Key", "x" * 201)], (422, "missing_key")),
            ({}, key, (422, "missing_member")),
            ({"reason": ""}, key, (422, "wrong_type")),
            ({"reason": " "}, key, (422, "wrong_type")),
            ({"reason": "r", "by": "eve"}, key, (422, "unknown_member")),
        ):
            assert (await ann("POST", path, body, headers=headers)).verdict == verdict
        asked = [await ann.ok("POST", path, why, headers=key) for _ in range(3)]
        assert asked[0] == asked[1] == asked[2]
        assert (asked[0]["by"], asked[0]["reason"]) == ("key:ann", "the address was wrong")
        while (await ann.ok("GET", PLACE))["states"] != ["succeeded", "succeeded"]:
            await apps.sleep(1)
        pulls = (await ann.ok("GET", PLACE))["application"]["pulls"]
        assert [pull.get("by") for pull in pulls] == [None, "key:ann"]


@virtual
async def test_an_application_that_is_not_there_is_not_found(patched: pytest.MonkeyPatch) -> None:
    async with office(patched) as (_, caller):
        assert (await caller("GET", PLACE)).verdict == (404, "no_such_job")
        for path in ("x/y", f"{ORGANISATION}/y", f"{ORGANISATION[:15]}XYZ/{opportunity(1)}"):
            answer = await caller("GET", f"/credit/applications/{path}")
            assert answer.verdict == (422, "bad_parameter")
        short = f"/credit/applications/{ORGANISATION[:15]}/{opportunity(1)[:15]}"
        await post(caller, GOOD)
        shown = await caller.ok("GET", short)
        assert shown["application"]["opportunity"] == opportunity(1)
