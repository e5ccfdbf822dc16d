"""Texts through Twilio: signed webhooks arrive, replies are sent with its REST API.

Twilio has no idempotency keys. So the URL for status callbacks contains the id of the reply, and a
callback identifies the message of a reply. If a send was interrupted and no callback has arrived,
the reply is searched among the messages to that phone. Its words are compared, ignoring additions
and replacements by Twilio. The reply was sent if exactly one message matches and can be no other
reply. It was not sent if no message could be it. Otherwise it is in doubt.
"""

import asyncio
import base64
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import msgspec

from apps.rps import deliveries, limits
from apps.rps.deliveries import Delivery, delivery_key
from apps.rps.matching import choose, close, is_same, message_key, open_, settle
from apps.rps.outgoing import Answer, call
from apps.rps.provider import Provider, Reply, logger
from apps.rps.rules import KEYWORDS
from onceward import BadInput, NotDone, Transaction
from onceward.web import Request, Response, Route

FORM = "application/x-www-form-urlencoded"
OPTED_OUT = 21610
"""Twilio's code for texts to phones that have sent STOP."""
# Codes about our settings, such as 21609 about the callback URL.
_NOT_US = (21609,)
# The maximum difference between Twilio's clock and ours.
_SLACK_MS = 300_000
# The number of messages to search, the newest.
_PAGE = 100
# Fields are signed without separators, so an invalid id could be an id and another field.
_SID = re.compile(r"[A-Z]{2}[0-9a-f]{32}")
_REPLY_ID = re.compile(r"[0-9A-Za-z]{8,64}")
# The direction of messages that were sent with the REST API.
_BY_API = "outbound-api"
# The statuses of incoming texts, which distinguish them from status callbacks.
_ARRIVED = ("", "received", "receiving")
_NOTHING = b'<?xml version="1.0" encoding="UTF-8"?><Response></Response>'

Pairs = Sequence[tuple[str, str]]


class Twilio(Provider):
    """An account at Twilio."""

    name: ClassVar[str] = "twilio"
    asks: ClassVar[bool] = True

    def __init__(
        self,
        account: str,
        token: str,
        public_url: str,
        *,
        fallback_url: str = "",
        rate: float = 0.0,
        answers_keywords: bool = True,
        api: str = "https://api.twilio.com",
    ) -> None:
        """`public_url` is the URL of the webhook in Twilio's settings, which Twilio signs; behind a
        proxy it differs from the received one. A query is taken from the request. `fallback_url` is
        the URL that Twilio calls if the first one fails. `answers_keywords`: Twilio confirms STOP
        itself, which is the default. Raises `BadInput`."""
        if not account or not token:
            raise BadInput("Twilio needs the SID of an account and its token")
        self._urls = (public_url, fallback_url) if fallback_url else (public_url,)
        for url in self._urls:
            parts = urlsplit(url)
            valid = parts.scheme in ("http", "https") and parts.netloc
            if not valid or parts.query or parts.fragment:
                raise BadInput(
                    f"invalid public URL {url!r} of the webhook; give it without a query and"
                    " without the part after #",
                    code="bad_url",
                )
        self.rate = rate
        self.answers_keywords = answers_keywords
        self._token = token
        self._status_url = f"{public_url.rstrip('/')}/status"
        self._messages = f"{api}/2010-04-01/Accounts/{quote(account)}/Messages.json"
        basic = base64.b64encode(f"{account}:{token}".encode()).decode()
        self._headers = {"Authorization": f"Basic {basic}"}

    # Incoming.

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/twilio", self.receive, "Receive a text from Twilio", public=True),
            Route("POST", "/twilio/status", self.report, "Receive a delivery status", public=True),
            Route("GET", "/twilio/replies", self.replies, "List replies to a phone", query=("to",)),
        ]

    async def receive(self, site: Any, request: Request) -> Response:
        """Respond with 200 when the text is stored. Idempotent."""
        form = await self._form(request, *self._urls)
        if status_of(form) not in _ARRIVED:
            # This URL is also configured for status callbacks.
            return await self._record(request, form)
        id_ = _sid_of(form)
        sender, text, ours = form.get("From", ""), form.get("Body", ""), form.get("To", "")
        # Only with Advanced Opt-Out: Twilio has recognized a keyword, which is configurable.
        keyword = form.get("OptOutType", "")
        keyword = keyword if keyword in KEYWORDS else ""
        await self.game.accept(self.name, id_, sender, text, ours=ours, keyword=keyword)
        return Response(200, _NOTHING, b"text/xml; charset=utf-8")

    async def report(self, site: Any, request: Request) -> Response:
        """Respond with 200 when the delivery status of a reply is stored. Idempotent."""
        form = await self._form(request, self._status_url)
        if status_of(form) in _ARRIVED:
            raise BadInput("MessageStatus is missing in the status callback", code="missing_member")
        return await self._record(request, form)

    async def _record(self, request: Request, form: dict[str, str]) -> Response:
        sid, status, to = _sid_of(form), status_of(form), self.game.number(form.get("To", ""))
        error = form.get("ErrorCode", "")[:10] if status in deliveries.NOT_DELIVERED else ""
        told = dict(parse_qsl(request.scope["query_string"].decode("latin-1"))).get("reply", "")

        async def record(tx: Transaction) -> tuple[str, Delivery | None]:
            id_ = told if _REPLY_ID.fullmatch(told) else await tx.get(message_key(sid), str)
            if not id_ or status not in deliveries.STAGE:
                return (
                    "",
                    None,
                )  # not a reply of ours, or a status without information about delivery
            await settle(tx, id_, to, sid)
            return id_, await deliveries.record(tx, to, id_, sid, status, error)

        id_, delivery = await self.game.app.run(record)
        if delivery is not None:
            self.game.app.meters.count("rps_deliveries", provider=self.name, status=status)
            if status in deliveries.NOT_DELIVERED:
                logger.warning("reply %s is %s (error %s)", id_, status, error or "unknown")
            if error == str(OPTED_OUT):
                await self.game.opt_out(to, delivery.sent_ms)
        return Response(200)

    async def replies(self, site: Any, request: Request) -> Response:
        """List the last replies to a phone with their delivery status, for callers that may manage
        the queue of replies."""
        server = request.scope.get("onceward")
        if server is None:
            raise BadInput("only the server of Onceward can list replies", code="no_credentials")
        server.caller(request).insist("manage", f"rps-replies-{self.name}")
        to = self.game.number(request.query(["to"]).get("to", ""))
        found = await self.game.app.run(lambda tx: deliveries.newest(tx, to))
        return Response.of({"replies": found})

    async def _form(self, request: Request, *urls: str) -> dict[str, str]:
        """Return the form of a request that Twilio has signed for a URL of ours. Raises
        `BadInput`."""
        pairs = read_form(await request.body(limits.REQUEST_BYTES_MAX, FORM))
        try:
            self.insist_signed(request, urls, pairs)
        except BadInput as error:
            self.note_refused(request, error)
            raise
        return dict(pairs)

    def insist_signed(self, request: Request, urls: Iterable[str], pairs: Pairs) -> None:
        """Raise `not_allowed` unless Twilio has signed a request to one of the URLs, with the query
        of the request."""
        given = request.header(b"x-twilio-signature") or ""
        query: bytes = request.scope["query_string"]
        asked = f"?{query.decode('latin-1')}" if query else ""
        right = [
            signature(self._token, one, pairs) for url in urls for one in spellings(url + asked)
        ]
        if not any(hmac.compare_digest(given.encode(), one.encode()) for one in right):
            raise BadInput(
                "the request is not signed by Twilio; check the token, the public URL and the"
                " fallback URL",
                code="not_allowed",
            )

    # Outgoing.

    async def send(self, id_: str, reply: Reply) -> dict[str, Any]:
        await self.game.app.run(lambda tx: open_(tx, id_, reply))
        try:
            result = await self._post(id_, reply)
        except NotDone:
            await self._note_sent(id_, reply)
            raise
        await self._note_sent(id_, reply, result.get("sid"))
        return result

    async def _post(self, id_: str, reply: Reply) -> dict[str, Any]:
        form = {
            "To": reply.to,
            "From": reply.ours,
            "StatusCallback": f"{self._status_url}?reply={quote(id_)}",
            "Body": reply.text,
        }
        headers = {**self._headers, "Content-Type": FORM}
        answer = await call("POST", self._messages, headers=headers, body=urlencode(form).encode())
        said = _read(answer)
        if answer.status in (200, 201) and isinstance(said.get("sid"), str):
            return {"sid": said["sid"]}
        return refused(answer, said)

    async def ask(self, id_: str, reply: Reply, created_ms: int) -> dict[str, Any]:
        """Look up a reply. Its request may still be in progress, so Twilio is asked several times.
        The last response decides whether the reply counts as not sent."""
        for left in reversed(range(limits.SETTLE_ASKS)):
            sid = None
            try:
                sid = await self._look(id_, reply, created_ms)
            except Exception as error:
                # Includes `NotDone`, which means that the lookup was not sent.
                if not left:
                    raise RuntimeError(f"the lookup at Twilio failed: {error}") from error
            if sid is not None:
                await self._note_sent(id_, reply, sid)
                return {"sid": sid, "settled": True}
            if left:
                await asyncio.sleep(limits.SETTLE_PAUSE_S)
        raise NotDone("Twilio does not have it")

    async def _look(self, id_: str, reply: Reply, created_ms: int) -> str | None:
        """Find the message of this reply. None if no message could be it; raises `RuntimeError` if
        one may be."""
        key = delivery_key(reply.to, id_)
        reported = await self.game.app.run(lambda tx: tx.get(key, Delivery))
        if reported is not None:
            return reported.sid
        query = urlencode({"To": reply.to, "From": reply.ours, "PageSize": _PAGE})
        answer = await call("GET", f"{self._messages}?{query}", headers=self._headers)
        said = _read(answer)
        messages = said.get("messages")
        if answer.status != 200 or not isinstance(messages, list):
            raise RuntimeError(f"it responded with {answer.status}")
        since = [one for one in messages if _created_ms(one) >= created_ms - _SLACK_MS]
        found = {
            one["sid"]: is_same(one.get("body"), reply.text)
            for one in since
            if one.get("direction", _BY_API) == _BY_API
        }
        sid = await self.game.app.run(lambda tx: choose(tx, id_, reply, found))
        cut_off = len(messages) >= _PAGE or said.get("next_page_uri")
        if sid is None and cut_off and len(since) == len(messages):
            raise RuntimeError("too many messages were sent since then to search them")
        return sid

    async def _note_sent(self, id_: str, reply: Reply, sid: str | None = None) -> None:
        """Record the outcome of a sending: a message, or nothing."""

        async def note(tx: Transaction) -> None:
            if sid is None:
                await close(tx, id_, reply.to)
                return
            await settle(tx, id_, reply.to, sid)
            await deliveries.record(tx, reply.to, id_, sid, "queued")

        await self.game.app.run(note)


def refused(answer: Answer, said: dict[str, Any]) -> dict[str, Any]:
    """Classify an error response: final if it is about this text alone. Raises `NotDone` if the
    text was not accepted but may be later, and `RuntimeError` if the outcome is unknown."""
    status, code = answer.status, said.get("code")
    told = f"Twilio responded with {status}: {said.get('message') or 'no message'} ({code})"
    if status == 429 or status == 503:
        raise NotDone(told, not_before_s=answer.retry_after_s)
    if status in (401, 403, 404) or code in _NOT_US:
        raise NotDone(told)  # the account or its token is wrong; an operator will fix it
    if 400 <= status < 500:
        return {"refused": code, "said": told, **({"opted_out": True} if code == OPTED_OUT else {})}
    raise RuntimeError(told)


def signature(token: str, url: str, pairs: Pairs) -> str:
    """The text that Twilio signs: the URL, and all fields of the form sorted by name."""
    fields: dict[str, set[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, set()).add(value)
    said = url + "".join(
        name + value for name, values in sorted(fields.items()) for value in sorted(values)
    )
    return base64.b64encode(hmac.digest(token.encode(), said.encode(), hashlib.sha1)).decode()


def spellings(url: str) -> Iterable[str]:
    """The spellings of a URL: with and without its port, since Twilio signs either."""
    parts = urlsplit(url)
    bare = parts.netloc.removesuffix(f":{parts.port}")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    for host in (parts.netloc, bare, f"{bare}:{port}"):
        yield url.replace(parts.netloc, host, 1)


def read_form(raw: bytes) -> list[tuple[str, str]]:
    """Parse a form. Raises `BadInput` for an invalid one."""
    try:
        return parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=200
        )
    except (UnicodeDecodeError, ValueError) as error:
        raise BadInput(f"the form is not valid: {error}", code="not_text") from error


def _read(answer: Answer) -> dict[str, Any]:
    try:
        said = msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return said if isinstance(said, dict) else {}


def _created_ms(message: dict[str, Any]) -> int:
    return int(parsedate_to_datetime(message["date_created"]).timestamp() * 1_000)


def status_of(form: Mapping[str, str]) -> str:
    """The status of the message in a form."""
    return (form.get("MessageStatus") or form.get("SmsStatus") or "").strip().lower()


def _sid_of(form: Mapping[str, str]) -> str:
    """The id of the message in a form. Raises `missing_member`."""
    id_ = form.get("MessageSid", "")
    if not _SID.fullmatch(id_):
        raise BadInput("MessageSid is missing in the text from Twilio", code="missing_member")
    return id_
