"""Twilio: what it has signed comes in, what it takes goes out, and what is unclear is asked."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import limits
from onceward.app import App
from onceward.apps.rps import words
from onceward.apps.rps.game import Game
from onceward.apps.rps.outgoing import call
from onceward.apps.rps.provider import Reply
from onceward.apps.rps.records import nick_key
from onceward.apps.rps.rules import fold
from onceward.apps.rps.twilio import FORM, Twilio, signature, spellings
from onceward.errors import BadInput, NotDone
from tests.apps.rps.fakes import ACCOUNT, TOKEN, FakeTwilio, error, hang_up, standing
from tests.needs import need
from tests.service.apps import Apps
from tests.service.cluster import virtual
from tests.web.asgi import Answer, Caller, serving

URL = "https://play.example/hooks/rps/twilio"
SID = "SM0123456789abcdef0123456789abcdef"
TEXT = {
    "MessageSid": SID,
    "SmsMessageSid": SID,
    "AccountSid": ACCOUNT,
    "From": "+12025550101",
    "To": "+12025550100",
    "Body": "nick Zo\N{LATIN SMALL LETTER E WITH DIAERESIS} ",
    "NumMedia": "0",
    "FromCity": "",
}
FIELDS = st.dictionaries(st.text(min_size=1, max_size=10), st.text(max_size=20), max_size=8)


def sign(form: dict[str, str], url: str = URL, token: str = TOKEN) -> str:
    """By Twilio's own library."""
    validator = need("twilio.request_validator").RequestValidator(token)
    made: str = validator.compute_signature(url, form)
    return made


def without(name: str) -> dict[str, str]:
    return {other: value for other, value in TEXT.items() if other != name}


async def deliver(
    caller: Caller, form: dict[str, str], signed: str, path: str = "/rps/twilio"
) -> Answer:
    headers = [("content-type", FORM), ("x-twilio-signature", signed), ("host", "10.0.0.7")]
    return await caller("POST", path, raw=urlencode(form).encode(), headers=headers)


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[Caller, Apps]]:
    """A game that Twilio can call, and that does not call Twilio."""
    apps = Apps(shared=False)
    app = apps.make()
    game = Game(app, [Twilio(ACCOUNT, TOKEN, URL, api="http://127.0.0.1:1")])
    app.mount("/rps", game.site())
    app.queue("rps-replies-twilio", paused=True)
    async with serving(app) as caller:
        yield caller, apps


@virtual
async def test_a_text_signed_by_twilio_is_taken_in_once() -> None:
    async with listening() as (caller, apps):
        for _ in range(5):
            answer = await deliver(caller, TEXT, sign(TEXT))
            assert answer.status == 200
            assert answer.headers["content-type"] == "text/xml; charset=utf-8"
            assert b"<Response></Response>" in answer.body
        await apps.sleep(5)
        player = apps.value(("rps-player", "+12025550101"))
        assert (player["nick"], player["line"]["ours"]) == ("Zoë", "+12025550100")
        assert apps.value(nick_key(fold("zOË"))) == "+12025550101"
        jobs = [
            key for key in apps.records if key[0].startswith("job#") and key[1].endswith("#job")
        ]
        assert len(jobs) == 2, "a text, and its reply"


@virtual
async def test_any_change_to_what_was_signed_is_refused() -> None:
    right = sign(TEXT)
    async with listening() as (caller, apps):
        changed = [
            *({**TEXT, name: value + "x"} for name, value in TEXT.items()),
            *(without(name) for name in TEXT if TEXT[name]),
            {**TEXT, "More": "fields"},
            {},
        ]
        for form in changed:
            assert (await deliver(caller, form, right)).verdict == (403, "not_allowed"), form
        for signed in ("", right[:-1], right.swapcase(), "x" * 28, sign(TEXT, token="other")):
            assert (await deliver(caller, TEXT, signed)).verdict == (403, "not_allowed"), signed
        for url in (URL + "/", URL.replace("https", "http"), URL.replace("play", "prey")):
            answer = await deliver(caller, TEXT, sign(TEXT, url))
            assert answer.verdict == (403, "not_allowed"), url
        assert (await deliver(caller, TEXT, right, "/rps/twilio?x=1")).status == 403
        assert not [key for key in apps.records if key[0].startswith(("job#", "inbox"))]
        assert (await deliver(caller, TEXT, right)).status == 200


@virtual
async def test_the_query_is_signed_too_and_the_port_may_be_there_or_not() -> None:
    async with listening() as (caller, _):
        for number, (url, path) in enumerate(
            (
                (URL + "?a=b%20c&d=", "/rps/twilio?a=b%20c&d="),
                (URL.replace("example", "example:443"), "/rps/twilio"),
                (URL, "/rps/twilio"),
            )
        ):
            form = {**TEXT, "MessageSid": f"SM{number:032x}"}
            assert (await deliver(caller, form, sign(form, url), path)).status == 200, url


@given(FIELDS, st.text(max_size=20))
def test_our_signature_is_that_of_twilios_library(form: dict[str, str], token: str) -> None:
    assert signature(token, URL, list(form.items())) == sign(form, token=token)


def test_our_signature_is_the_one_in_twilios_documentation() -> None:
    form = {
        "CallSid": "CA1234567890ABCDE",
        "Caller": "+14158675309",
        "Digits": "1234",
        "From": "+14158675309",
        "To": "+18005551212",
    }
    url = "https://mycompany.com/myapp.php?foo=1&bar=2"
    assert signature("12345", url, list(form.items())) == "RSOYDt4T1cUTdK1PDd93/VVr8B8="


def test_addresses_are_spelled_with_and_without_their_port() -> None:
    assert set(spellings("https://a.example/x?a.example=1")) == {
        "https://a.example/x?a.example=1",
        "https://a.example:443/x?a.example=1",
    }
    assert set(spellings("http://[::1]:8080/x")) == {"http://[::1]:8080/x", "http://[::1]/x"}


@virtual
async def test_what_is_no_text_of_twilio_is_refused() -> None:
    async with listening() as (caller, apps):
        for changes, verdict in (
            ({"MessageSid": ""}, (422, "missing_member")),
            ({"MessageSid": SID + "NumMedia0"}, (422, "missing_member")),
            ({"From": ""}, (422, "wrong_type")),
            ({"From": "whatsapp:+12025550101"}, (422, "wrong_type")),
            ({"From": "72727"}, (422, "wrong_type")),
        ):
            form = {**TEXT, **changes}
            assert (await deliver(caller, form, sign(form))).verdict == verdict
        headers = [("content-type", FORM), ("x-twilio-signature", sign(TEXT))]
        for raw in (b"\xff", b"a=%ff", b"&".join([b"a=1"] * 300)):
            answer = await caller("POST", "/rps/twilio", raw=raw, headers=headers)
            assert answer.verdict == (400, "not_text")
        big = b"Body=" + b"x" * limits.RPS_REQUEST_BYTES_MAX
        answer = await caller("POST", "/rps/twilio", raw=big, headers=headers)
        assert answer.verdict == (413, "body_too_large")
        answer = await caller("POST", "/rps/twilio", {"MessageSid": SID})
        assert answer.verdict == (415, "not_this_type")
        assert not [key for key in apps.records if key[0].startswith(("job#", "inbox"))]


def test_an_account_that_cannot_be_is_refused() -> None:
    for account, token, url in (
        ("", TOKEN, URL),
        (ACCOUNT, "", URL),
        (ACCOUNT, TOKEN, "play.example/twilio"),
        (ACCOUNT, TOKEN, ""),
        (ACCOUNT, TOKEN, URL + "?a=b"),
    ):
        with pytest.raises(BadInput):
            Twilio(account, token, url)


# Out, over real connections.


@asynccontextmanager
async def playing(
    monkeypatch: pytest.MonkeyPatch, token: str = TOKEN
) -> AsyncIterator[tuple[FakeTwilio, App, Game]]:
    monkeypatch.setattr(limits, "RPS_SETTLE_PAUSE_S", 0.0)
    async with standing(FakeTwilio()) as twilio:
        app = App("memory://")
        game = Game(app, [Twilio(ACCOUNT, token, URL, api=twilio.url)])
        async with app:
            # So that what is tried again is tried at once.
            await app.queues.configure("rps-replies-twilio", retry_first_ms=1, retry_max_ms=1)
            yield twilio, app, game


async def reply_to(app: App, game: Game, id_: str, text: str = "help") -> Any:
    """The job of the reply to a text, when it has ended."""
    receipt = await game.accept("twilio", id_, "+12025550101", text, ours="+12025550100")
    [reply] = (await app.wait(receipt.id)).result["replies"]
    return await app.wait(reply["id"], 30)


async def test_a_reply_is_sent_by_the_rest_api(monkeypatch: pytest.MonkeyPatch) -> None:
    async with playing(monkeypatch) as (twilio, app, game):
        job = await reply_to(app, game, "1", "nick Zoë")
        assert (job.state, job.result) == ("done", {"sid": twilio.messages[0]["sid"]})
        [message] = twilio.messages
        assert (message["to"], message["from"]) == ("+12025550101", "+12025550100")
        assert message["body"] == words.welcome("Zoë")


@pytest.mark.parametrize("code", [21610, 21211, 21408])
async def test_a_reply_that_is_refused_is_final(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    async with playing(monkeypatch) as (twilio, app, game):
        twilio.answers = [error(400, code)]
        job = await reply_to(app, game, "1", "stop")
        assert (job.state, job.attempt, job.result["refused"]) == ("done", 1, code)
        assert len(twilio.requests) == 1
        assert (await reply_to(app, game, "2")).result.keys() == {"sid"}, "others are sent"


async def test_a_reply_that_was_not_taken_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with playing(monkeypatch) as (twilio, app, game):
        twilio.answers = [
            error(429, 20429),
            error(503, 20503, **{"Retry-After": "0"}),
            error(401, 20003),
        ]
        job = await reply_to(app, game, "1")
        assert (job.state, job.attempt, len(twilio.messages)) == ("done", 4, 1)
        assert [method for method, *_ in twilio.requests] == ["POST"] * 4, "nobody had to ask"
        assert "20429" in job.history[0].reason


@pytest.mark.parametrize("kept", [True, False])
async def test_a_reply_without_an_answer_is_settled_by_asking(
    monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    async with playing(monkeypatch) as (twilio, app, game):
        await reply_to(app, game, "0")  # the same words, as another reply
        # And in a time before there was a reply.
        old = {**twilio.messages[0], "sid": "SM old", "date_created": formatdate(0)}
        twilio.messages.insert(0, old)
        twilio.answers = [twilio.keep_and_hang_up if kept else hang_up]
        job = await reply_to(app, game, "1")
        assert (job.state, job.attempt) == ("done", 1 if kept else 2)
        assert len(twilio.messages) == 3, "never twice, and never lost"
        assert job.result["sid"] == twilio.messages[-1]["sid"]
        assert job.result.get("settled", False) is kept
        job = await reply_to(app, game, "2")
        assert job.result["sid"] == twilio.messages[-1]["sid"]


async def test_a_reply_that_nobody_can_tell_of_is_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    async with playing(monkeypatch) as (twilio, app, game):
        twilio.answers = [error(500, 20500), error(500, 20500)]
        job = await reply_to(app, game, "1")
        assert job.state == "doubt"
        assert "could not be found out" in job.reason
        assert twilio.messages == []
        [letter] = await app.queues.dead("rps-replies-twilio")
        await app.queues.settle(letter.id, "call", done=False)
        assert (await app.wait(letter.id, 30)).state == "done"
        assert len(twilio.messages) == 1


@pytest.mark.parametrize("back", [True, False])
async def test_where_twilio_cannot_be_asked_a_reply_is_not_sent_again(
    monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    async with playing(monkeypatch) as (twilio, app, game):
        asked = 0

        async def calling(method: str, url: str, **options: Any) -> Any:
            nonlocal asked
            asked += method == "GET"
            if method == "GET" and (asked < limits.RPS_SETTLE_ASKS or not back):
                url = "http://127.0.0.1:1/"
            return await call(method, url, **options)

        monkeypatch.setattr("onceward.apps.rps.twilio.call", calling)
        twilio.answers = [twilio.keep_and_hang_up]
        job = await reply_to(app, game, "1")
        assert asked == limits.RPS_SETTLE_ASKS
        if back:
            sid = twilio.messages[0]["sid"]
            assert (job.state, job.result) == ("done", {"sid": sid, "settled": True})
        else:
            assert job.state == "doubt"
            assert "Twilio cannot be asked" in job.reason
        assert len(twilio.messages) == len(twilio.requests) - back == 1, "never twice"


class Noting:
    """In the place of the HTTP client of Twilio's library: notes what it would send."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def request(self, method: str, url: str, **options: Any) -> Any:
        self.calls.append({"method": method, "path": urlsplit(url).path, **options})
        response = need("twilio.http.response").Response
        if method == "POST":
            return response(201, json.dumps({"sid": SID}))
        return response(200, json.dumps({"messages": []}))


async def test_what_is_sent_and_asked_is_what_twilios_own_client_sends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noting = Noting()
    client = need("twilio.rest").Client(ACCOUNT, TOKEN, http_client=noting)
    to, ours = "+12025550101", "+12025550100"
    client.messages.create(to=to, from_=ours, body=words.HELP)
    client.messages.list(to=to, from_=ours, page_size=100)
    sent, asked = noting.calls
    async with playing(monkeypatch) as (twilio, app, game):
        twilio.answers = [twilio.keep_and_hang_up]
        await reply_to(app, game, "1")
        (post, path, headers, form), (get, found, same, _) = twilio.requests
    basic = base64.b64encode(":".join(sent["auth"]).encode()).decode()
    assert headers["authorization"] == same["authorization"] == f"Basic {basic}"
    assert (post, path, form) == (sent["method"], sent["path"], sent["data"])
    assert headers["content-type"] == sent["headers"]["Content-Type"]
    path, _, query = found.partition("?")
    wanted = {name: str(value) for name, value in asked["params"].items() if value is not None}
    assert (get, path, dict(parse_qsl(query))) == (asked["method"], asked["path"], wanted)


async def test_where_nobody_answers_nothing_was_sent() -> None:
    twilio = Twilio(ACCOUNT, TOKEN, URL, api="http://127.0.0.1:1")
    with pytest.raises(NotDone, match="no connection"):
        await twilio.send("id", Reply("+12025550101", "+12025550100", "hello"))
