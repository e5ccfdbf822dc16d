"""Texts by Twilio: webhooks with its signature come in, replies go out by its REST API.

Twilio takes no idempotency key. So a reply whose sending was cut off is looked for among the
messages it has for that number: there it is, or it was not sent. The same words may be said
twice: so it is noted which message is which reply, and which replies may be there without that. A
message that may be another reply counts for neither.
"""

import asyncio
import base64
import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import msgspec

from onceward import keys
from onceward.apps.rps import limits
from onceward.apps.rps.outgoing import Answer, call
from onceward.apps.rps.provider import Provider, Reply
from onceward.apps.rps.rules import KEYWORDS
from onceward.errors import BadInput, NotDone
from onceward.keys import Key
from onceward.records import UserTransaction
from onceward.web.http import Request, Response
from onceward.web.routes import Route

FORM = "application/x-www-form-urlencoded"
OPTED_OUT = 21610
"""The code with which Twilio refuses texts to people who have sent STOP."""
_KEPT_MS = 30 * 24 * 3_600_000
# By how much Twilio's clock and ours may differ.
_SLACK_MS = 300_000
# How many messages it is asked for, the newest.
_PAGE = 100
# Fields are signed without anything between them: what is no id could be an id and a field.
_SID = re.compile(r"[A-Z]{2}[0-9a-f]{32}")
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
        rate: float = 0.0,
        answers_keywords: bool = True,
        api: str = "https://api.twilio.com",
    ) -> None:
        """`public_url` is the address of the webhook as it was given to Twilio, which signs it:
        behind a proxy it is not the one that arrives here. A query is taken from the request.
        `answers_keywords`: Twilio confirms STOP itself, as it does unless its support has turned
        that off for the account. Raises `BadInput`."""
        if not account or not token:
            raise BadInput("Twilio needs the SID of an account and its token")
        parts = urlsplit(public_url)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.query:
            raise BadInput(
                f"the public URL of the webhook, without a query, is not {public_url!r}",
                code="bad_url",
            )
        self.rate = rate
        self.answers_keywords = answers_keywords
        self._token = token
        self._public_url = public_url
        self._messages = f"{api}/2010-04-01/Accounts/{quote(account)}/Messages.json"
        basic = base64.b64encode(f"{account}:{token}".encode()).decode()
        self._headers = {"Authorization": f"Basic {basic}"}

    # In.

    def routes(self) -> list[Route]:
        return [Route("POST", "/twilio", self.receive, "A text comes from Twilio", public=True)]

    async def receive(self, site: Any, request: Request) -> Response:
        """Answers 200 when the text is stored, or was before."""
        raw = await request.body(limits.REQUEST_BYTES_MAX, FORM)
        pairs = read_form(raw)
        self.insist_signed(request, pairs)
        form = dict(pairs)
        id_ = form.get("MessageSid", "")
        if not _SID.fullmatch(id_):
            raise BadInput("a text from Twilio has a MessageSid", code="missing_member")
        sender, text, ours = form.get("From", ""), form.get("Body", ""), form.get("To", "")
        # Only with Advanced Opt-Out: Twilio has recognised a keyword, which it lets people choose.
        keyword = form.get("OptOutType", "")
        keyword = keyword if keyword in KEYWORDS else ""
        await self.game.accept(self.name, id_, sender, text, ours=ours, keyword=keyword)
        return Response(200, _NOTHING, b"text/xml; charset=utf-8")

    def insist_signed(self, request: Request, pairs: Pairs) -> None:
        """Raise `not_allowed` unless Twilio has signed a request."""
        given = request.header(b"x-twilio-signature") or ""
        query: bytes = request.scope["query_string"]
        url = self._public_url + (f"?{query.decode('latin-1')}" if query else "")
        right = [signature(self._token, one, pairs) for one in spellings(url)]
        if not any(hmac.compare_digest(given.encode(), one.encode()) for one in right):
            raise BadInput("the request is not signed by Twilio", code="not_allowed")

    # Out.

    async def send(self, id_: str, reply: Reply) -> dict[str, Any]:
        await self._note_sending(id_, reply)
        try:
            result = await self._post(reply)
        except NotDone:
            await self._note_sent(id_, reply)
            raise
        await self._note_sent(id_, reply, result.get("sid"))
        return result

    async def _post(self, reply: Reply) -> dict[str, Any]:
        form = {"To": reply.to, "From": reply.ours, "Body": reply.text}
        headers = {**self._headers, "Content-Type": FORM}
        answer = await call("POST", self._messages, headers=headers, body=urlencode(form).encode())
        said = _read(answer)
        if answer.status in (200, 201) and isinstance(said.get("sid"), str):
            return {"sid": said["sid"]}
        return refused(answer, said)

    async def ask(self, id_: str, reply: Reply, made_ms: int) -> dict[str, Any]:
        """Look for a reply. A request may be on its way still, so Twilio is asked more than once,
        and must answer the last time, before it counts as not sent."""
        for left in reversed(range(limits.SETTLE_ASKS)):
            sid = None
            try:
                sid = await self._look(id_, reply, made_ms)
            except Exception as error:
                # Also `NotDone`: it is the question then that was not sent.
                if not left:
                    raise RuntimeError(f"Twilio cannot tell: {error}") from error
            if sid is not None:
                await self._note_sent(id_, reply, sid)
                return {"sid": sid, "settled": True}
            if left:
                await asyncio.sleep(limits.SETTLE_PAUSE_S)
        raise NotDone("Twilio does not have it")

    async def _look(self, id_: str, reply: Reply, made_ms: int) -> str | None:
        """The message at Twilio that is this reply and no other one, if there is one."""
        query = urlencode({"To": reply.to, "From": reply.ours, "PageSize": _PAGE})
        answer = await call("GET", f"{self._messages}?{query}", headers=self._headers)
        messages = _read(answer).get("messages")
        if answer.status != 200 or not isinstance(messages, list):
            raise RuntimeError(f"it answered {answer.status}")
        since = [one for one in messages if _made_ms(one) >= made_ms - _SLACK_MS]
        sids = [message["sid"] for message in since if message["body"] == reply.text]
        sid = await self.game.app.run(lambda tx: _choose(tx, id_, reply, sids))
        if sid is None and len(since) >= _PAGE:
            raise RuntimeError("it has sent too many messages since to look through")
        return sid

    async def _note_sending(self, id_: str, reply: Reply) -> None:
        """Note that a reply may be at Twilio from now on, once more."""

        async def note(tx: UserTransaction) -> None:
            key = (_open(reply), id_)
            _put(tx, key, (await tx.get(key, int) or 0) + 1)

        await self.game.app.run(note)

    async def _note_sent(self, id_: str, reply: Reply, sid: str | None = None) -> None:
        """Note what has become of a sending: a message, or nothing."""

        async def note(tx: UserTransaction) -> None:
            if sid is not None:
                if await tx.get(_message(sid)) == id_:
                    return  # it was known before
                _put(tx, _message(sid), id_)
            key = (_open(reply), id_)
            left = (await tx.get(key, int) or 0) - 1
            if left > 0:
                _put(tx, key, left)
            else:
                tx.delete(key)

        await self.game.app.run(note)


def _message(sid: str) -> Key:
    """Where it is noted which reply a message is."""
    return "rps-twilio", sid


def _open(reply: Reply) -> str:
    """The partition of all replies that say the same to the same phone, and of which nobody
    knows whether they are at Twilio, each with the number of its sendings."""
    return keys.join("rps-twilio-open", hashlib.sha256(msgspec.json.encode(reply)).hexdigest())


def _put(tx: UserTransaction, key: Key, value: Any) -> None:
    tx.put(key, value, expires_at_ms=tx.now_ms + _KEPT_MS)


async def _choose(tx: UserTransaction, id_: str, reply: Reply, sids: list[str]) -> str | None:
    """Which of the messages that say the same is this reply. Raises `RuntimeError` if there is
    one that may be this reply, and may be another."""
    owners = dict(zip(sids, await tx.get_many([_message(sid) for sid in sids], str), strict=True))
    for sid, owner in owners.items():
        if owner == id_:
            return sid
    unknown = [sid for sid, owner in owners.items() if owner is None]
    if unknown and [row.key[1] for row in await tx.scan(_open(reply), int, limit=2)] != [id_]:
        raise RuntimeError(f"{unknown[0]} may be another reply of these words")
    return unknown[0] if unknown else None


def refused(answer: Answer, said: dict[str, Any]) -> dict[str, Any]:
    """What an answer means that is no success: final, if it is about this text alone. Raises
    `NotDone` where the text was not taken but may be later, and `RuntimeError` where nobody
    knows."""
    status, code = answer.status, said.get("code")
    told = f"Twilio answered {status}: {said.get('message') or 'no message'} ({code})"
    if status == 429 or status == 503:
        raise NotDone(told, not_before_s=answer.retry_after_s)
    if status in (401, 403, 404):
        raise NotDone(told)  # the account or its token are wrong: someone will set that right
    if 400 <= status < 500:
        return {"refused": code, "said": told, **({"opted_out": True} if code == OPTED_OUT else {})}
    raise RuntimeError(told)


def signature(token: str, url: str, pairs: Pairs) -> str:
    """What Twilio signs: the address, and all fields of the form sorted by their names."""
    fields: dict[str, set[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, set()).add(value)
    said = url + "".join(
        name + value for name, values in sorted(fields.items()) for value in sorted(values)
    )
    return base64.b64encode(hmac.digest(token.encode(), said.encode(), hashlib.sha1)).decode()


def spellings(url: str) -> Iterable[str]:
    """The ways to write an address: with and without its port, since Twilio signs either."""
    parts = urlsplit(url)
    bare = parts.netloc.removesuffix(f":{parts.port}")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    for host in (parts.netloc, bare, f"{bare}:{port}"):
        yield url.replace(parts.netloc, host, 1)


def read_form(raw: bytes) -> list[tuple[str, str]]:
    """The fields of a form. Raises `BadInput` for what is none."""
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


def _made_ms(message: dict[str, Any]) -> int:
    return int(parsedate_to_datetime(message["date_created"]).timestamp() * 1_000)
