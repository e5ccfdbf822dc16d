"""Calls to the outside: the bureau that is asked, and Salesforce that is told."""

from http import HTTPStatus
from typing import Any

import aiohttp
import msgspec

from apps.credit import limits
from apps.credit.decision import read_report
from onceward import Fail, NotDone, Retry

_DELIVERY_S = 30.0
# With these a server says that it has done nothing, and may do it later.
_LATER = (HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
# And with these, that it has not even looked: they tell of the way to it, and not of the
# applicant, so that one who sets the address or the password right gets all pulls made.
_UNSEEN = (
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.REQUEST_TIMEOUT,
)
_AFTER_S_MAX = 3_600.0


class Refused(NotDone):
    """The bureau will not pull for this applicant, and has not."""


async def pull(
    url: str,
    reference: str,
    fields: dict[str, Any],
    *,
    key: str | None,
    timeout_s: float,
    authorization: str = "",
) -> Any:
    """Pull credit for an applicant, and return the report as JSON. With a key the bureau knows
    the request again, and pulls once for it.

    Raises `NotDone` where surely nothing was pulled, and it may be asked again, `Refused` where
    that would be no use. Any other error says nothing of whether it was pulled.
    """
    headers = {"Idempotency-Key": key or "", "Authorization": authorization}
    asked = {"reference": reference, "applicant": fields}
    try:
        status, answer, after_s = await _post(url, asked, headers, timeout_s)
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise NotDone(f"the bureau cannot be reached: {error}") from error
    if status == HTTPStatus.OK:
        return msgspec.to_builtins(read_report(answer))
    said = f"the bureau answered {status}: {answer[:200].decode(errors='replace')}"
    if status in _LATER or status in _UNSEEN:
        raise NotDone(said, not_before_s=after_s)
    if 400 <= status < 500:
        raise Refused(said)
    raise Retry(said, not_before_s=after_s)


async def deliver(url: str, id_: str, result: Any, *, authorization: str = "") -> str:
    """Tell Salesforce a result, under an id by which it knows it again. Raises `Retry`, `Fail`,
    and what says that no answer came."""
    headers = {"Idempotency-Key": id_, "Authorization": authorization}
    status, answer, after_s = await _post(url, result, headers, _DELIVERY_S)
    if 200 <= status < 300:
        return f"{status}"
    said = f"Salesforce answered {status}: {answer[:200].decode(errors='replace')}"
    if status in _LATER or status in _UNSEEN or not 400 <= status < 500:
        raise Retry(said, not_before_s=after_s)
    raise Fail(said)


async def _post(
    url: str, body: Any, headers: dict[str, str], timeout_s: float
) -> tuple[int, bytes, float | None]:
    """Status, body, and how long to wait if that is said. Headers that are empty are left out.
    Raises `Retry` for a body over the limit, of which no more is read. A connection of its own:
    pulls are few and long, and one that is kept may end just when the next request is sent on
    it."""
    timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=limits.CONNECT_S)
    given = {name: text for name, text in headers.items() if text}
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(
            url,
            data=msgspec.json.encode(body),
            headers={"Content-Type": "application/json", **given},
            allow_redirects=False,
        ) as answer,
    ):
        after = answer.headers.get("Retry-After", "")
        after_s = min(float(after), _AFTER_S_MAX) if after.isdecimal() else None
        said = b""
        while chunk := await answer.content.read(limits.ANSWER_BYTES_MAX + 1 - len(said)):
            said += chunk
        if len(said) > limits.ANSWER_BYTES_MAX:
            raise Retry(f"it answered {answer.status} with too many bytes", not_before_s=after_s)
        return answer.status, said, after_s
