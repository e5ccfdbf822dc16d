"""Calls to providers: one request on a new connection, with limits.

Texts cost money, so it matters whether a request was sent. An error before that is `NotDone`; after
any other error the outcome is unknown.
"""

from collections.abc import Mapping
from typing import NamedTuple

import aiohttp

from apps.rps import limits
from onceward import NotDone, Unreachable


class Answer(NamedTuple):
    """The response of a provider."""

    status: int
    body: bytes
    retry_after_s: float | None
    """The delay that it asks for, within limits."""


async def call(
    method: str, url: str, *, headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> Answer:
    """Make a request without following redirects. Raises `NotDone` if nothing was sent, and errors
    of `aiohttp` if something may have been."""
    timeout = aiohttp.ClientTimeout(
        total=limits.TOTAL_S, sock_connect=limits.CONNECT_S, connect=limits.CONNECT_S
    )
    async with aiohttp.ClientSession(timeout=timeout) as session:
        try:
            async with session.request(
                method, url, headers=headers, data=body, allow_redirects=False
            ) as response:
                said = await response.content.read(limits.ANSWER_BYTES_MAX)
                while len(said) < limits.ANSWER_BYTES_MAX and not response.content.at_eof():
                    said += await response.content.read(limits.ANSWER_BYTES_MAX - len(said))
                after = response.headers.get("Retry-After", "")
                after_s = min(float(after), limits.AFTER_S_MAX) if after.isdecimal() else None
                return Answer(response.status, said, after_s)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotDone(f"cannot connect to the provider: {error}") from error


async def fetch(url: str) -> bytes:
    """Download a URL. Raises as `call`, and `Unreachable` for other statuses."""
    answer = await call("GET", url)
    if answer.status != 200:
        raise Unreachable(f"{url[:200]} responded with {answer.status}")
    return answer.body
