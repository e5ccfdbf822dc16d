"""Texts by AWS: two-way SMS comes in over an SNS topic, replies go out by SNS.

Amazon signs what a topic sends, and anyone can have a topic: so the signature is checked, and
that the topic is ours. SNS cannot be asked what became of a text: a reply that was cut off is in
doubt, for a person to settle.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from html import unescape
from typing import Any, ClassVar
from urllib.parse import urlencode

import msgspec

from apps.rps import aws, limits
from apps.rps.outgoing import Answer, call, fetch
from apps.rps.provider import Provider, Reply
from apps.rps.sns_signature import Envelope, insist_amazon, insist_certificate, verify
from onceward import App, BadInput, Job, NotDone
from onceward.web import Request, Response, Route, parse

CONFIRMATIONS = "rps-sns-confirmations"
_PLAIN = "text/plain"
# Codes of requests that were not carried out because there are too many, mostly with status 400:
# those of SNS, and those that the AWS SDKs retry for every service.
_NOT_NOW = (
    *("Throttled", "Throttling", "ThrottlingException", "ThrottledException", "KMSThrottling"),
    *("RequestThrottled", "RequestThrottledException", "TooManyRequestsException", "SlowDown"),
    *("RequestLimitExceeded", "BandwidthLimitExceeded", "LimitExceededException"),
    *("ProvisionedThroughputExceededException", "TransactionInProgressException"),
    *("PriorRequestNotComplete", "EC2ThrottledException", "RequestTimeout"),
    "RequestTimeoutException",
)
# Codes that speak of our key, our clock or our rights: some of them come with status 400.
_NOT_US = (
    *("AccessDenied", "AccessDeniedException", "AuthFailure", "AuthorizationError"),
    *("ExpiredToken", "ExpiredTokenException", "IncompleteSignature", "InvalidClientTokenId"),
    *("InvalidSecurity", "MissingAuthenticationToken", "NotAuthorized", "OptInRequired"),
    *("RequestExpired", "SignatureDoesNotMatch", "UnrecognizedClientException"),
)

# Publish may also answer `InvalidParameter`, with a message that says so.
_OPTED_OUT = ("OptedOut", "OptedOutException")


class Arrived(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text as AWS tells of it; it tells more, which does not matter."""

    id: str = msgspec.field(name="inboundMessageId")
    sender: str = msgspec.field(name="originationNumber")
    ours: str = msgspec.field(name="destinationNumber", default="")
    text: str = msgspec.field(name="messageBody", default="")


Fetch = Callable[[str], Awaitable[bytes]]


class Sns(Provider):
    """Topics and texts of an AWS account."""

    name: ClassVar[str] = "sns"

    def __init__(
        self,
        credentials: aws.Credentials,
        region: str,
        topics: Sequence[str],
        *,
        rate: float = 20.0,
        answers_keywords: bool = True,
        api: str = "",
        fetch: Fetch = fetch,
    ) -> None:
        """`topics` are the ARNs from which texts come. `answers_keywords`: AWS confirms STOP
        itself, as it does unless opt-outs of the number are self-managed. `api` is where texts are
        published, and `fetch` gets what is at an address of Amazon, both for tests. Raises
        `BadInput`."""
        if not topics or isinstance(topics, str) or not all(t.startswith("arn:") for t in topics):
            raise BadInput("texts come from topics, each named by its ARN")
        if not re.fullmatch(r"[a-z0-9-]+", region):
            raise BadInput(f"{region!r} is no region of AWS")
        self.rate = rate
        self.answers_keywords = answers_keywords
        self._credentials = credentials
        self._region = region
        self._topics = set(topics)
        self._api = api or f"https://sns.{region}.amazonaws.com/"
        self._fetch = fetch
        self._certificates: dict[str, bytes] = {}

    def join(self, game: Any) -> None:
        super().join(game)
        # To confirm twice is as good as once, so that is repeated until it is answered.
        game.app.outbox(CONFIRMATIONS, policy="repeat", attempts_max=12, internal=True)(
            self.confirm
        )

    # In.

    def routes(self) -> list[Route]:
        return [Route("POST", "/sns", self.receive, "A text comes from SNS", public=True)]

    async def receive(self, site: Any, request: Request) -> Response:
        """Answers 200 when the text, or the topic's wish to be confirmed, is stored."""
        raw = await request.body(limits.REQUEST_BYTES_MAX, _PLAIN)
        envelope = parse(raw, Envelope)
        app: App = self.game.app
        try:
            await self._insist_signed(envelope, app.store.clock.now_ms())
        except BadInput as error:
            self.note_refused(request, error)
            raise
        if envelope.type == "SubscriptionConfirmation":
            insist_amazon(envelope.subscribe_url)
            key = f"{envelope.topic_arn} {envelope.message_id}"
            await app.send(CONFIRMATIONS, {"url": envelope.subscribe_url}, key=key)
        elif envelope.type == "Notification":
            text = parse(envelope.message.encode(), Arrived)
            await self.game.accept(self.name, text.id, text.sender, text.text, ours=text.ours)
        return Response(200)

    async def _insist_signed(self, envelope: Envelope, now_ms: int) -> None:
        """Raise `not_allowed` unless one of our topics has sent this, and Amazon signed it."""
        if envelope.topic_arn not in self._topics:
            raise BadInput("texts do not come from this topic", code="not_allowed")
        url = envelope.signing_cert_url
        insist_certificate(url)
        certificate = self._certificates.get(url)
        if certificate is None:
            certificate = await self._fetch(url)
        verify(envelope, certificate, now_ms)
        # Only what has signed something of ours, and the last ones of those.
        self._certificates.pop(url, None)
        self._certificates[url] = certificate
        if len(self._certificates) > limits.CERTIFICATES_MAX:
            del self._certificates[next(iter(self._certificates))]

    async def confirm(self, job: Job) -> dict[str, Any]:
        """Tell a topic that its texts are welcome."""
        url: str = job.body["url"]
        insist_amazon(url)
        return {"bytes": len(await self._fetch(url))}

    # Out.

    async def send(self, id_: str, reply: Reply) -> dict[str, Any]:
        form = {
            "Action": "Publish",
            "Version": "2010-03-31",
            "PhoneNumber": reply.to,
            "Message": reply.text,
            **_attribute(1, "AWS.SNS.SMS.SMSType", "Transactional"),
        }
        if reply.ours:
            form |= _attribute(2, "AWS.MM.SMS.OriginationNumber", reply.ours)
        body = urlencode(form).encode()
        headers = aws.sign(
            self._credentials,
            "POST",
            self._api,
            {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"},
            body,
            region=self._region,
            service="sns",
            now_ms=self.game.app.store.clock.now_ms(),
        )
        answer = await call("POST", self._api, headers=headers, body=body)
        said = answer.body.decode("utf-8", "replace")
        if answer.status == 200 and (id_ := _element(said, "MessageId")):
            return {"id": id_}
        return refused(answer, _element(said, "Code"), _element(said, "Message"))


def refused(answer: Answer, code: str, message: str) -> dict[str, Any]:
    """What an answer means that is no success, as for Twilio. Raises `NotDone` where the text
    was not taken but may be later, and `RuntimeError` where nobody knows."""
    told = f"SNS answered {answer.status}: {message or 'no message'} ({code})"
    if code in _NOT_NOW or answer.status in (429, 503):
        raise NotDone(told, not_before_s=answer.retry_after_s)
    if code in _NOT_US or answer.status in (401, 403, 404):
        raise NotDone(told)  # the account or its rights are wrong: someone will set that right
    if 400 <= answer.status < 500:
        opted_out = code in _OPTED_OUT or "opted out" in message.casefold()
        return {"refused": code, "said": told, **({"opted_out": True} if opted_out else {})}
    raise RuntimeError(told)


def _attribute(number: int, name: str, value: str) -> dict[str, str]:
    entry = f"MessageAttributes.entry.{number}"
    return {
        f"{entry}.Name": name,
        f"{entry}.Value.DataType": "String",
        f"{entry}.Value.StringValue": value,
    }


def _element(xml: str, name: str) -> str:
    """The text of an element of an answer. These are flat and come from Amazon: no need for a
    parser, which could be led astray."""
    found = re.search(f"<{name}>([^<]*)</{name}>", xml)
    return unescape(found[1]) if found else ""
