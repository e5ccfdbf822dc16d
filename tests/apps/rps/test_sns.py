"""SNS: what Amazon has signed for our topic comes in, and what it takes goes out."""

import json
from typing import Any

import pytest

from apps.rps import aws, limits, outgoing, words
from apps.rps.game import Game
from apps.rps.provider import Reply
from apps.rps.sns import CONFIRMATIONS, Sns, refused
from onceward.app import App
from onceward.errors import BadInput, NotDone, Unreachable
from tests.apps.rps.amazon import (
    CERTIFICATE,
    SUBSCRIBE,
    TOPIC,
    certificate,
    confirmation,
    moment,
    notification,
    signed,
)
from tests.apps.rps.fakes import FakeSns, hang_up, sns_error, standing
from tests.schedule.cluster import virtual
from tests.web.asgi import Answer, Caller, serving
from tests.work.apps import Apps

KEY = aws.Credentials("AKIDEXAMPLE", "secret")
PLAIN = [("content-type", "text/plain; charset=UTF-8")]


class Internet:
    """What is fetched, and how often."""

    def __init__(self, apps: Apps) -> None:
        self.fetched: list[str] = []
        self.failures = 0
        self.refusing = ""
        """What cannot be fetched while there are failures; empty for everything."""
        self.certificate = certificate(moment(apps.clock.now_ms(), -1))

    async def fetch(self, url: str) -> bytes:
        self.fetched.append(url)
        if self.failures and self.refusing in ("", url):
            self.failures -= 1
            raise Unreachable("amazon is away")
        return self.certificate if url.endswith(".pem") else b"<ok/>"


def declared(apps: Apps, internet: Internet) -> App:
    app = apps.make()
    sns = Sns(KEY, "us-east-1", [TOPIC], api="http://127.0.0.1:1/", fetch=internet.fetch)
    app.mount("/rps", Game(app, [sns]).site())
    app.queue("rps-replies-sns", paused=True)
    return app


async def deliver(caller: Caller, message: dict[str, Any]) -> Answer:
    return await caller("POST", "/rps/sns", raw=json.dumps(message).encode(), headers=PLAIN)


def stored(apps: Apps) -> list[Any]:
    return [key for key in apps.records if key[0].startswith(("job#", "inbox"))]


@pytest.mark.parametrize("version", ["1", "2"])
@virtual
async def test_a_text_signed_by_amazon_is_taken_in_once(version: str) -> None:
    apps = Apps(shared=False)
    internet = Internet(apps)
    async with serving(declared(apps, internet)) as caller:
        for number in range(5):
            # The topic may publish a text twice; what counts is the id of the text.
            message = signed(notification("nick Ann", MessageId=f"m{number}"), version)
            assert (await deliver(caller, message)).status == 200
        await caller.app.store.clock.sleep(5)
        player = apps.value(("rps-player", "+12025550101"))
        assert (player["nick"], player["line"]["ours"]) == ("Ann", "+12025550100")
        jobs = [key for key in stored(apps) if key[1].endswith("#job")]
        assert len(jobs) == 2, "a text, and its reply"
        assert internet.fetched == [CERTIFICATE], "it is fetched once"
        subject = signed(notification("top", "in-2", Subject="two-way"), version)
        assert (await deliver(caller, subject)).status == 200


@virtual
async def test_any_change_to_what_was_signed_is_refused() -> None:
    apps = Apps(shared=False)
    async with serving(declared(apps, Internet(apps))) as caller:
        for right in (signed(notification("nick Ann")), signed(confirmation())):
            for name in ("Message", "MessageId", "Timestamp", "TopicArn", "Signature"):
                changed = {**right, name: right[name][:-1] + "x"}
                assert (await deliver(caller, changed)).verdict == (403, "not_allowed"), name
            for changes in (
                {"Subject": "new"} if right["Type"] == "Notification" else {"Token": "other"},
                {"SignatureVersion": "1"},
                {"SignatureVersion": "3"},
                {"Signature": "?"},
                {"Type": "UnsubscribeConfirmation"} if right["Type"] == "Notification" else {},
                {"Type": "Other"},
            ):
                if changes:
                    answer = await deliver(caller, {**right, **changes})
                    assert answer.verdict == (403, "not_allowed"), changes
        assert stored(apps) == []


@pytest.mark.parametrize(
    "url",
    [
        "http://sns.us-east-1.amazonaws.com/x.pem",
        "https://sns.us-east-1.amazonaws.com.evil.example/x.pem",
        "https://evil.example/sns.us-east-1.amazonaws.com/x.pem",
        "https://evil.example/?sns.us-east-1.amazonaws.com",
        "https://sns.us-east-1.amazonaws.com@evil.example/x.pem",
        "https://evil.example\\@sns.us-east-1.amazonaws.com/x.pem",
        "https://sns.us-east-1.amazonaws.com:8443/x.pem",
        "https://sns.us-east-1.amazonaws.com:x/x.pem",
        "https://s3.us-east-1.amazonaws.com/x.pem",
        "https://xsns.us-east-1.amazonaws.com/x.pem",
        "https://sns.a.b.amazonaws.com/x.pem",
        "https://[::1/x.pem",
        "",
    ],
)
@virtual
async def test_a_certificate_from_elsewhere_is_refused_and_not_fetched(url: str) -> None:
    apps = Apps(shared=False)
    internet = Internet(apps)
    async with serving(declared(apps, internet)) as caller:
        message = signed(notification("nick Ann", SigningCertURL=url))
        assert (await deliver(caller, message)).verdict == (403, "not_allowed")
        # To be confirmed there, either.
        message = signed(confirmation(SubscribeURL=url))
        assert (await deliver(caller, message)).verdict == (403, "not_allowed")
        assert internet.fetched in ([], [CERTIFICATE])
        assert stored(apps) == []


@pytest.mark.parametrize(
    "url",
    [
        # What its API answers may hold a certificate that someone has put there.
        "https://sns.us-east-1.amazonaws.com/?Action=GetTopicAttributes&TopicArn=x",
        "https://sns.us-east-1.amazonaws.com/",
        "https://sns.us-east-1.amazonaws.com/x.pem",
        CERTIFICATE.replace(".com/", ".com/x/"),
        CERTIFICATE.replace("-0.pem", "-.pem"),
        CERTIFICATE.replace("-0.pem", "-0x.pem"),
        CERTIFICATE.replace("-0.pem", "-0/../0.pem"),
        CERTIFICATE.replace(".com/", ".com:8443/"),
        CERTIFICATE.replace("https://", "https://user@"),
        CERTIFICATE.replace("https", "http"),
        CERTIFICATE + "?",
        CERTIFICATE + "?x=.pem",
        CERTIFICATE + "#",
        CERTIFICATE + "\n",
    ],
)
@virtual
async def test_what_else_is_on_the_host_of_amazon_is_no_certificate(url: str) -> None:
    apps = Apps(shared=False)
    internet = Internet(apps)
    async with serving(declared(apps, internet)) as caller:
        message = signed(notification("nick Ann", SigningCertURL=url))
        assert (await deliver(caller, message)).verdict == (403, "not_allowed")
        assert (internet.fetched, stored(apps)) == ([], [])


@virtual
async def test_of_many_certificates_those_used_last_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "CERTIFICATES_MAX", 2)
    apps = Apps(shared=False)
    internet = Internet(apps)
    message = signed(notification("nick Ann"))
    async with serving(declared(apps, internet)) as caller:
        for name, fetches in (("a", 1), ("b", 2), ("a", 2), ("c", 3), ("a", 3), ("b", 4)):
            url = CERTIFICATE.replace("-0", f"-{name}")
            assert (await deliver(caller, {**message, "SigningCertURL": url})).status == 200
            assert len(internet.fetched) == fetches, name


@virtual
async def test_another_topic_is_refused_though_amazon_has_signed_it() -> None:
    apps = Apps(shared=False)
    internet = Internet(apps)
    async with serving(declared(apps, internet)) as caller:
        for message in (
            signed(notification("nick Ann", TopicArn=TOPIC + "2")),
            signed(confirmation(TopicArn="arn:aws:sns:us-east-1:999999999999:texts")),
        ):
            assert (await deliver(caller, message)).verdict == (403, "not_allowed")
        assert (internet.fetched, stored(apps)) == ([], [])


@virtual
async def test_a_certificate_that_is_not_valid_now_is_refused() -> None:
    apps = Apps(shared=False)
    internet = Internet(apps)
    async with serving(declared(apps, internet)) as caller:
        for pem in (
            certificate(moment(apps.clock.now_ms(), 1)),
            certificate(moment(apps.clock.now_ms(), -30), days=29),
            b"no certificate",
        ):
            internet.certificate = pem
            message = signed(notification("nick Ann"))
            assert (await deliver(caller, message)).verdict == (403, "not_allowed")
        internet.certificate = certificate(moment(apps.clock.now_ms(), -1))
        internet.failures = 1
        assert (await deliver(caller, message)).status == 502, "Amazon will send it again"
        assert stored(apps) == []
        assert (await deliver(caller, message)).status == 200, "what failed is not kept in mind"


@virtual
async def test_a_topic_is_confirmed_however_often_that_fails() -> None:
    apps = Apps(shared=False)
    internet = Internet(apps)
    async with serving(declared(apps, internet)) as caller:
        internet.refusing = SUBSCRIBE
        internet.failures = 2
        for _ in range(3):
            assert (await deliver(caller, signed(confirmation()))).status == 200
        await caller.app.store.clock.sleep(60)
        assert internet.fetched == [CERTIFICATE, *[SUBSCRIBE] * 3], "twice in vain, and then once"
        gone = signed(confirmation("UnsubscribeConfirmation"))
        assert (await deliver(caller, gone)).status == 200
        await caller.app.store.clock.sleep(60)
        assert internet.fetched.count(SUBSCRIBE) == 3, "who unsubscribes is not asked back"
        assert await caller.app.queues.failed(CONFIRMATIONS) == []


@virtual
async def test_what_is_no_message_of_a_topic_is_refused() -> None:
    apps = Apps(shared=False)
    async with serving(declared(apps, Internet(apps))) as caller:
        for raw, verdict in (
            (b"", (400, "not_json")),
            (b"[1", (400, "not_json")),
            (b"[1]", (422, "wrong_type")),
            (b'{"Type": "Notification"}', (422, "missing_member")),
            (b'{"Type": "a", "Type": "b"}', (400, "duplicate_member")),
        ):
            answer = await caller("POST", "/rps/sns", raw=raw, headers=PLAIN)
            assert answer.verdict in (verdict, (422, "missing_member")), raw
        assert (await caller("POST", "/rps/sns", {})).verdict == (415, "not_this_type")
        for said in ("no JSON", '{"messageBody": "x"}', '{"originationNumber": 1}'):
            message = signed(notification("x", Message=said))
            assert (await deliver(caller, message)).status in (400, 422)
        short = json.dumps({"originationNumber": "72727", "inboundMessageId": "1"})
        message = signed(notification("x", Message=short))
        assert (await deliver(caller, message)).verdict == (422, "wrong_type")
        assert stored(apps) == []


def test_settings_that_cannot_be_are_refused() -> None:
    for region, topics in (
        ("us-east-1", []),
        ("us-east-1", TOPIC),
        ("us-east-1", ["texts"]),
        ("evil.example/", [TOPIC]),
    ):
        with pytest.raises(BadInput):
            Sns(KEY, region, topics)


# Out, over real connections.


async def reply_to(app: App, game: Game, id_: str, text: str = "hi!") -> Any:
    receipt = await game.accept("sns", id_, "+12025550101", text, ours="+12025550100")
    [reply] = (await app.wait(receipt.id)).result["replies"]
    return await app.wait(reply["id"], 30)


async def test_a_reply_is_published_and_signed() -> None:
    async with standing(FakeSns()) as sns:
        app = App("memory://")
        game = Game(app, [Sns(KEY, "us-east-1", [TOPIC], api=sns.url + "/")])
        async with app:
            assert (await reply_to(app, game, "1")).result == {"id": "m1"}
            [(method, path, headers, form)] = sns.requests
            assert (method, path) == ("POST", "/")
            assert form["PhoneNumber"] == "+12025550101"
            assert form["Message"] == words.unknown("hi")
            assert form["MessageAttributes.entry.2.Name"] == "AWS.MM.SMS.OriginationNumber"
            assert form["MessageAttributes.entry.2.Value.StringValue"] == "+12025550100"
            assert "/us-east-1/sns/aws4_request" in headers["authorization"]
            assert "secret" not in str(headers)


async def test_what_sns_answers_decides_what_becomes_of_a_reply() -> None:
    async with standing(FakeSns()) as sns:
        app = App("memory://")
        game = Game(app, [Sns(KEY, "us-east-1", [TOPIC], api=sns.url + "/")])
        async with app:
            await app.queues.configure("rps-replies-sns", retry_first_s=0.001, retry_max_s=0.001)
            sns.answers = [sns_error(400, "Throttled"), sns_error(403, "InvalidClientTokenId")]
            job = await reply_to(app, game, "again")
            assert (job.state, job.attempt) == ("succeeded", 3)
            sns.answers = [sns_error(400, "OptedOut")]
            job = await reply_to(app, game, "opted out")
            assert (job.state, job.attempt, job.result["refused"]) == ("succeeded", 1, "OptedOut")
            await reply_to(app, game, "back", "start")
            for answer in (sns_error(500, "InternalError"), hang_up):
                sns.answers = [answer]
                before = len(sns.requests)
                job = await reply_to(app, game, f"doubt {answer}")
                assert (job.state, len(sns.requests) - before) == ("in_doubt", 1)
            [first, _] = await app.queues.failed("rps-replies-sns")
            await app.queues.settle(first.id, "call", done=True, result={"id": "seen on a phone"})
            assert (await app.wait(first.id)).result == {"id": "seen on a phone"}


@pytest.mark.parametrize(
    "code",
    [
        *("RequestExpired", "NotAuthorized", "IncompleteSignature", "ExpiredTokenException"),
        *("SignatureDoesNotMatch", "InvalidClientTokenId", "AccessDeniedException"),
    ],
)
def test_what_is_wrong_with_our_account_is_no_refusal_of_a_text(code: str) -> None:
    with pytest.raises(NotDone, match=code):
        refused(outgoing.Answer(400, b"", None), code, "because")


async def test_where_nobody_answers_nothing_was_sent() -> None:
    sns = Sns(KEY, "us-east-1", [TOPIC], api="http://127.0.0.1:1/")
    Game(app := App("memory://"), [sns])
    async with app:
        with pytest.raises(NotDone, match="cannot connect"):
            await sns.send("id", Reply("+12025550101", "", "hello"))


@virtual
async def test_a_refused_signature_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    apps = Apps(shared=False)
    async with serving(declared(apps, Internet(apps))) as caller:
        right = signed(notification("nick Ann"))
        assert (await deliver(caller, right)).status == 200
        wrong = [{"Message": "{}"}, {"TopicArn": TOPIC + "x"}, {"SigningCertURL": "https://x/"}]
        for number, changes in enumerate(wrong, 1):
            assert (await deliver(caller, {**right, **changes})).verdict == (403, "not_allowed")
            assert caller.app.meters.total("rps_refused_signatures", provider="sns") == number
        [line] = [one.getMessage() for one in caplog.records if one.name == "onceward.rps"]
        assert line.startswith("sns: rejected a request from ")
        assert "not signed by Amazon" in line
