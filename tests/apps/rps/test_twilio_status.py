"""Status callbacks from Twilio: what it has signed is stored for the reply, and is never a text."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from apps.rps import limits, words
from apps.rps.game import Game
from apps.rps.matching import open_
from apps.rps.provider import Reply
from apps.rps.twilio import Twilio
from onceward.app import App
from onceward.errors import NotDone
from onceward.web.auth import Auth
from tests.apps.rps.fakes import ACCOUNT, TOKEN, FakeTwilio, hang_up, standing
from tests.apps.rps.test_twilio import TEXT, deliver, sign
from tests.schedule.cluster import virtual
from tests.web.asgi import Caller, keyed, serving
from tests.work.apps import Apps

URL = "https://play.example/hooks/rps/twilio"
ANN, OURS = "+12025550101", "+12025550100"
SID = "SM0123456789abcdef0123456789abcdef"
REPLY = "01M7JQ4QRGPQP1MYX90MXNT9EG011"
REPLIES = f"/rps/twilio/replies?to=%2B{ANN[1:]}"


def callback(status: str, sid: str = SID, **more: str) -> dict[str, str]:
    """The form of a status callback, as Twilio documents it."""
    return {
        "MessageSid": sid,
        "SmsSid": sid,
        "MessageStatus": status,
        "SmsStatus": status,
        "AccountSid": ACCOUNT,
        "ApiVersion": "2010-04-01",
        "From": OURS,
        "To": ANN,
        **more,
    }


async def report(caller: Caller, form: dict[str, str], query: str = f"?reply={REPLY}") -> Any:
    signed = sign(form, f"{URL}/status{query}")
    return await deliver(caller, form, signed, f"/rps/twilio/status{query}")


@asynccontextmanager
async def listening(auth: Auth | None = None) -> AsyncIterator[tuple[Caller, Apps]]:
    apps = Apps(shared=False)
    app = apps.make()
    app.mount("/rps", Game(app, [Twilio(ACCOUNT, TOKEN, URL, api="http://127.0.0.1:1")]).site())
    app.queue("rps-replies-twilio", paused=True)
    async with serving(app, auth) as caller:
        yield caller, apps


async def statuses(caller: Caller) -> list[tuple[str, str, str]]:
    found = (await caller.ok("GET", REPLIES))["replies"]
    return [(one["id"], one["status"], one["error"]) for one in found]


@virtual
async def test_a_status_is_stored_for_its_reply_and_never_goes_back() -> None:
    async with listening() as (caller, _):
        for status, shown in (
            ("queued", "queued"),
            ("sent", "sent"),
            ("sending", "sent"),
            ("delivered", "delivered"),
            ("sent", "delivered"),
            ("delivered", "delivered"),
        ):
            assert (await report(caller, callback(status))).status == 200
            assert await statuses(caller) == [(REPLY, shown, "")]
        meters = caller.app.meters
        assert meters.total("rps_deliveries", status="delivered") == 1
        assert meters.total("rps_deliveries") == 3


@pytest.mark.parametrize("status", ["undelivered", "failed"])
@virtual
async def test_a_reply_that_was_not_delivered_has_its_error_and_is_logged(
    status: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening() as (caller, _):
        assert (await report(caller, callback(status, ErrorCode="30003"))).status == 200
        assert await statuses(caller) == [(REPLY, status, "30003")]
        [line] = [one.getMessage() for one in caplog.records if one.name == "onceward.rps"]
        assert line == f"reply {REPLY} is {status} (error 30003)"


@pytest.mark.parametrize("query", ["", f"?reply={REPLY}"])
@virtual
async def test_a_status_at_the_address_of_texts_is_no_text(query: str) -> None:
    async with listening() as (caller, apps):
        for form in (callback("delivered"), {**callback("sent"), "MessageStatus": ""}):
            answer = await deliver(caller, form, sign(form, URL + query), f"/rps/twilio{query}")
            assert answer.status == 200
        await apps.sleep(5)
        assert not [key for key in apps.records if key[0].startswith(("job#", "inbox"))]
        assert await statuses(caller) == ([(REPLY, "delivered", "")] if query else [])


@virtual
async def test_a_status_that_twilio_has_not_signed_is_refused() -> None:
    async with listening() as (caller, apps):
        form = callback("delivered")
        path = f"/rps/twilio/status?reply={REPLY}"
        for signed in (
            "",
            sign(form),
            sign(form, f"{URL}/status"),
            sign(form, f"{URL}/status?reply={REPLY}x"),
            sign(form, f"{URL}/status?reply={REPLY}", token="other"),
            sign(callback("sent"), f"{URL}/status?reply={REPLY}"),
        ):
            assert (await deliver(caller, form, signed, path)).verdict == (403, "not_allowed")
        assert not [key for key in apps.own if key[0].startswith("rps-")]


@virtual
async def test_what_is_no_status_is_refused_or_passed_over() -> None:
    async with listening() as (caller, apps):
        for form, verdict in (
            (TEXT, (422, "missing_member")),
            ({**TEXT, "SmsStatus": "received"}, (422, "missing_member")),
            (callback("sent", sid="SM1"), (422, "missing_member")),
            (callback("sent", To="Ann"), (422, "wrong_type")),
        ):
            assert (await report(caller, form)).verdict == verdict
        assert (await report(caller, callback("partying"))).status == 200
        assert (await report(caller, callback("sent"), query="")).status == 200, "of another"
        assert not [key for key in apps.own if key[0].startswith("rps-")]


@virtual
async def test_a_status_without_the_reply_is_found_by_the_message() -> None:
    async with listening() as (caller, _):
        await report(caller, callback("queued"))
        await report(caller, callback("delivered"), query="")
        assert await statuses(caller) == [(REPLY, "delivered", "")]


@virtual
async def test_a_status_that_says_opted_out_counts_like_stop() -> None:
    async with listening() as (caller, apps):
        text = {**TEXT, "Body": "nick Ann"}
        await deliver(caller, text, sign(text))
        await apps.sleep(5)
        await report(caller, callback("failed", ErrorCode="21610"))
        assert apps.value(("rps-consent", ANN))["out"] is True
        assert apps.value(("rps-player", ANN)) is None


@virtual
async def test_only_those_who_manage_replies_see_their_status() -> None:
    auth, tokens = keyed(boss="manage:rps-replies-*", other="manage:orders")
    async with listening(auth) as (caller, _):
        await report(caller, callback("sent"))
        assert (await caller("GET", REPLIES)).verdict == (401, "no_credentials")
        other = Caller(caller.server, tokens["other"])
        assert (await other("GET", REPLIES)).verdict == (403, "not_allowed")
        boss = Caller(caller.server, tokens["boss"])
        assert await statuses(boss) == [(REPLY, "sent", "")]
        answer = await boss("GET", "/rps/twilio/replies?to=Ann")
        assert answer.verdict == (422, "wrong_type")


async def test_a_callback_settles_an_interrupted_send_in_any_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "SETTLE_PAUSE_S", 0.0)
    async with standing(FakeTwilio()) as twilio:
        app = App("memory://")
        provider = Twilio(ACCOUNT, TOKEN, URL, api=twilio.url)
        app.mount("/rps", Game(app, [provider]).site())
        async with serving(app) as caller:
            reply = Reply(ANN, OURS, words.HELP)
            twilio.stores = lambda body: "***"
            await app.run(lambda tx: open_(tx, REPLY, reply))
            sid = twilio.keep({"To": ANN, "From": OURS, "Body": words.HELP})["sid"]
            with pytest.raises(RuntimeError, match="may be this reply"):
                await provider.ask(REPLY, reply, 0)
            assert (await report(caller, callback("sent", sid=sid))).status == 200
            twilio.answers = [hang_up] * limits.SETTLE_ASKS
            assert await provider.ask(REPLY, reply, 0) == {"sid": sid, "settled": True}
            # The message is known now: it is taken for no other reply.
            twilio.answers = []
            other = "01M7JQ4QRGPQP1MYX90MXNT9EG022"
            await app.run(lambda tx: open_(tx, other, reply))
            with pytest.raises(NotDone, match="does not have it"):
                await provider.ask(other, reply, 0)


# Signatures that are refused.


@virtual
async def test_a_refused_signature_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with listening() as (caller, _):
        for number in range(1, 4):
            assert (await deliver(caller, TEXT, "forged")).status == 403
            total = caller.app.meters.total("rps_refused_signatures", provider="twilio")
            assert total == number
        [line] = [one.getMessage() for one in caplog.records if one.name == "onceward.rps"]
        assert line.startswith("twilio: rejected a request from ")
        assert "not signed by Twilio" in line
        assert "forged" not in line
        answer = await caller("GET", "/metrics")
        assert b'onceward_rps_refused_signatures_total{provider="twilio"} 3' in answer.body
