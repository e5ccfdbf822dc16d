"""Texts through AWS: two-way SMS arrives through an SNS topic, replies are sent with SNS.

Amazon signs messages of a topic, and anyone can own a topic. So the signature and the topic are
checked. SNS cannot look up a text: an interrupted reply is in doubt until an operator settles it.
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
# Codes of throttled requests, mostly with status 400: those of SNS, and those that the AWS SDKs
# retry for every service.
_NOT_NOW = (
    *("Throttled", "Throttling", "ThrottlingException", "ThrottledException", "KMSThrottling"),
    *("RequestThrottled", "RequestThrottledException", "TooManyRequestsException", "SlowDown"),
    *("RequestLimitExceeded", "BandwidthLimitExceeded", "LimitExceededException"),
    *("ProvisionedThroughputExceededException", "TransactionInProgressException"),
    *("PriorRequestNotComplete", "EC2ThrottledException", "RequestTimeout"),
    "RequestTimeoutException",
)
# Codes about our key, clock or permissions; some have status 400.
_NOT_US = (
    *("AccessDenied", "AccessDeniedException", "AuthFailure", "AuthorizationError"),
    *("ExpiredToken", "ExpiredTokenException", "IncompleteSignature", "InvalidClientTokenId"),
    *("InvalidSecurity", "MissingAuthenticationToken", "NotAuthorized", "OptInRequired"),
    *("RequestExpired", "SignatureDoesNotMatch", "UnrecognizedClientException"),
)

# Publish may also respond with `InvalidParameter` and a message about the opt-out.
_OPTED_OUT = ("OptedOut", "OptedOutException")


class Arrived(msgspec.Struct, frozen=True, omit_defaults=True):
    """The used members of a text from AWS."""

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
        """`topics` are the ARNs from which texts arrive. `answers_keywords`: AWS confirms STOP
        itself, which is the default unless opt-outs are self-managed. `api` is the endpoint for
        texts, and `fetch` downloads a URL of Amazon, both for tests. Raises `BadInput`."""
        if not topics or isinstance(topics, str) or not all(t.startswith("arn:") for t in topics):
            raise BadInput("give the ARNs of the topics from which texts arrive")
        if not re.fullmatch(r"[a-z0-9-]+", region):
            raise BadInput(f"unknown AWS region {region!r}")
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
        # Confirmations are idempotent, so they are repeated until there is a response.
        game.app.outbox(CONFIRMATIONS, policy="repeat", attempts_max=12, internal=True)(
            self.confirm
        )

    # Incoming.

    def routes(self) -> list[Route]:
        return [Route("POST", "/sns", self.receive, "Receive a text from SNS", public=True)]

    async def receive(self, site: Any, request: Request) -> Response:
        """Respond with 200 when the text or the subscription request is stored."""
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
        """Raise `not_allowed` unless the message is from one of our topics and signed by Amazon."""
        if envelope.topic_arn not in self._topics:
            raise BadInput("texts of this topic are not accepted", code="not_allowed")
        url = envelope.signing_cert_url
        insist_certificate(url)
        certificate = self._certificates.get(url)
        if certificate is None:
            certificate = await self._fetch(url)
        verify(envelope, certificate, now_ms)
        # Only certificates of valid messages are cached, the most recent ones.
        self._certificates.pop(url, None)
        self._certificates[url] = certificate
        if len(self._certificates) > limits.CERTIFICATES_MAX:
            del self._certificates[next(iter(self._certificates))]

    async def confirm(self, job: Job) -> dict[str, Any]:
        """Confirm the subscription of a topic."""
        url: str = job.body["url"]
        insist_amazon(url)
        return {"bytes": len(await self._fetch(url))}

    # Outgoing.

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
    """Classify an error response, as for Twilio. Raises `NotDone` if the text was not accepted but
    may be later, and `RuntimeError` if the outcome is unknown."""
    told = f"SNS responded with {answer.status}: {message or 'no message'} ({code})"
    if code in _NOT_NOW or answer.status in (429, 503):
        raise NotDone(told, not_before_s=answer.retry_after_s)
    if code in _NOT_US or answer.status in (401, 403, 404):
        raise NotDone(told)  # the account or its permissions are wrong; an operator will fix it
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
    """The text of an element of a response. Responses are flat and come from Amazon, so no XML
    parser is needed."""
    found = re.search(f"<{name}>([^<]*)</{name}>", xml)
    return unescape(found[1]) if found else ""
