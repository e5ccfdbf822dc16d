"""Texts from Twilio: what it has signed comes in, once, and nothing else does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.rps import limits
from apps.rps.game import Game
from apps.rps.records import nick_key
from apps.rps.spelling import fold
from apps.rps.twilio import FORM, Twilio, signature, spellings
from onceward.errors import BadInput
from tests.apps.rps.fakes import ACCOUNT, TOKEN
from tests.needs import need
from tests.schedule.cluster import virtual
from tests.web.asgi import Answer, Caller, serving
from tests.work.apps import Apps

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
async def listening(**options: str) -> AsyncIterator[tuple[Caller, Apps]]:
    """A game that Twilio can call, and that does not call Twilio."""
    apps = Apps(shared=False)
    app = apps.make()
    game = Game(app, [Twilio(ACCOUNT, TOKEN, URL, api="http://127.0.0.1:1", **options)])
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
async def test_a_text_at_the_fallback_url_is_the_same_text() -> None:
    fallback = "https://play2.example/rps/twilio"
    async with listening(fallback_url=fallback) as (caller, apps):
        assert (await deliver(caller, TEXT, sign(TEXT))).status == 200
        failed = {**TEXT, "ErrorCode": "11200", "ErrorUrl": URL}
        assert (await deliver(caller, failed, sign(failed, fallback))).status == 200
        assert (await deliver(caller, failed, sign(failed, f"{fallback}/"))).status == 403
        await apps.sleep(5)
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
        big = b"Body=" + b"x" * limits.REQUEST_BYTES_MAX
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


@virtual
async def test_a_keyword_that_twilio_has_recognised_opts_out_and_in() -> None:
    async with listening() as (caller, apps):
        for number, (text, keyword, nick, out) in enumerate(
            (
                ("nick Ann", "", "Ann", None),
                ("BASTA", "STOP", None, True),
                ("nick Ann", "", None, True),
                ("YES", "", None, True),
                ("YES", "START", None, False),
                ("nick Ann", "OTHER", "Ann", False),
                ("help", "HELP", "Ann", False),
            )
        ):
            form = {**TEXT, "MessageSid": f"SM{number:032x}", "Body": text}
            form |= {"OptOutType": keyword} if keyword else {}
            assert (await deliver(caller, form, sign(form))).status == 200
            await apps.sleep(5)
            player = apps.value(("rps-player", "+12025550101"))
            consent = apps.value(("rps-consent", "+12025550101"))
            assert (player["nick"] if player else None) == nick, text
            assert (consent["out"] if consent else None) is out, text
        jobs = [key for key in apps.records if key[0].startswith("job#")]
        texts = [apps.value(key, internal=True)["queue"] for key in jobs if key[1].endswith("#job")]
        assert texts.count("rps-replies-twilio") == 2, "Twilio has replied to its keywords itself"
