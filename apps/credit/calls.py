"""External calls: pulls at the bureau and deliveries to Salesforce."""

from http import HTTPStatus
from typing import Any

import aiohttp
import msgspec

from apps.credit import limits
from apps.credit.decision import read_report
from onceward import Fail, NotDone, Retry

_DELIVERY_S = 30.0
# With these statuses a server has done nothing and can be asked later.
_LATER = (HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
# These statuses are about the connection or credentials, not the applicant. After an operator has
# fixed the settings, all pulls are made.
_UNSEEN = (
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.REQUEST_TIMEOUT,
)
_AFTER_S_MAX = 3_600.0


class Refused(NotDone):
    """The bureau has declined to pull for this applicant."""


async def pull(
    url: str,
    reference: str,
    fields: dict[str, Any],
    *,
    key: str | None,
    timeout_s: float,
    authorization: str = "",
) -> Any:
    """Pull credit for an applicant, and return the report as JSON. With a key the bureau
    deduplicates.

    Raises `NotDone` if certainly nothing was pulled and a retry can succeed, `Refused` if it
    cannot. After any other error the outcome is unknown.
    """
    headers = {"Idempotency-Key": key or "", "Authorization": authorization}
    asked = {"reference": reference, "applicant": fields}
    try:
        status, answer, after_s = await _post(url, asked, headers, timeout_s)
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise NotDone(f"cannot connect to the bureau: {error}") from error
    if status == HTTPStatus.OK:
        return msgspec.to_builtins(read_report(answer))
    said = f"the bureau responded with {status}: {answer[:200].decode(errors='replace')}"
    if status in _LATER or status in _UNSEEN:
        raise NotDone(said, not_before_s=after_s)
    if 400 <= status < 500:
        raise Refused(said)
    raise Retry(said, not_before_s=after_s)


async def deliver(url: str, id_: str, result: Any, *, authorization: str = "") -> str:
    """Deliver a result to Salesforce under an id for deduplication. Raises `Retry`, `Fail`, and
    errors of a missing response."""
    headers = {"Idempotency-Key": id_, "Authorization": authorization}
    status, answer, after_s = await _post(url, result, headers, _DELIVERY_S)
    if 200 <= status < 300:
        return f"{status}"
    said = f"Salesforce responded with {status}: {answer[:200].decode(errors='replace')}"
    if status in _LATER or status in _UNSEEN or not 400 <= status < 500:
        raise Retry(said, not_before_s=after_s)
    raise Fail(said)


async def _post(
    url: str, body: Any, headers: dict[str, str], timeout_s: float
) -> tuple[int, bytes, float | None]:
    """Return status, body, and the delay of a `Retry-After`.

    Empty headers are omitted. Raises `Retry` for a body over the limit. Each call uses a new
    connection: pulls are few and long, and a reused connection may be closed just as the next
    request is sent.
    """
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
            raise Retry(
                f"it responded with {answer.status} and too many bytes", not_before_s=after_s
            )
        return answer.status, said, after_s
