"""Client methods for timers and endpoints."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Unpack

from onceward.api import endpoints as endpoints_api
from onceward.api import timers as timers_api
from onceward.api.endpoints import CreatedEndpoint, Endpoint
from onceward.api.timers import CreatedTimer, Timer
from onceward.client.transport import Course, Transport
from onceward.errors import AlreadyEnded, BadInput, NoSuchEndpoint, NotFailed
from onceward.job_options import JobKeywords
from onceward.quantities import milliseconds
from onceward.webhooks.retries import read_policy
from onceward.webhooks.signing import new_secret

_DAY_S = 24 * 3_600.0

Time = int | str | datetime


class TimerCalls(Transport):
    """Timers and endpoints of a server."""

    # Timers.

    async def set_timer(
        self,
        id_: str | None = None,
        *,
        url: str | None = None,
        endpoint: str | None = None,
        queue: str | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        append_id: bool | None = None,
        at: Time | None = None,
        delay_s: float | None = None,
        every_s: float | None = None,
        cron: str | None = None,
        zone: str | None = None,
        catch_up: str | None = None,
        retry: Mapping[str, Any] | None = None,
        key: str | None = None,
        **options: Unpack[JobKeywords],
    ) -> CreatedTimer:
        """Let something happen at a time: a POST to a URL or endpoint, or a job in a queue.

        `at` is a time in ms, a text as in RFC 3339, or a datetime that knows its time zone. The
        timer is set once for its id or key; without either an id is made up. The same again says
        that it is a duplicate. `retry` has the members `pauses_s`, `attempts_max` and
        `timeout_s`. Raises `BadInput`, `KeyReused`, `NoSuchEndpoint`.
        """
        if id_ is None and key is None:
            id_ = self.ids.new()  # so that it can be asked again
        asked = {
            "id": id_,
            "key": key,
            "url": url,
            "endpoint": endpoint,
            "queue": queue,
            "body": body,
            "headers": _headers(headers),
            "append_id": append_id,
            **_when(at, delay_s),
            "every_ms": None if every_s is None else milliseconds(every_s, "an interval"),
            "cron": cron,
            "zone": zone,
            "catch_up": catch_up,
            "retry": read_policy(retry),
            **options,
        }
        return await self.run(timers_api.CREATE, body=_given(asked))

    async def timer(self, id_: str, *, app: bool = False) -> Timer:
        """A timer, its next times, and what became of its last firing. With `app` it is one of
        the application that is served, also in the calls below. Raises `NoSuchTimer`."""
        return await self.run(timers_api.GET, id_, query=_of(app))

    async def timers(
        self,
        *,
        prefix: str | None = None,
        state: str | None = None,
        app: bool = False,
        after: str | None = None,
        limit: int = 100,
    ) -> tuple[list[Timer], str | None]:
        """Timers in the order of their ids, and after which one the next ones come. A page may
        be short although there are more."""
        query = _given({"prefix": prefix, "state": state, "after": after, "limit": limit})
        query |= _of(app)
        found = await self.run(timers_api.LIST, query=query)
        return found.timers, found.next

    async def move_timer(
        self,
        id_: str,
        *,
        at: Time | None = None,
        delay_s: float | None = None,
        app: bool = False,
    ) -> Timer:
        """Let a timer be due at another time. A delay counts from when the server hears of it.
        Raises `NoSuchTimer`, `AlreadyEnded`."""
        course, asked = Course(), _given(_when(at, delay_s))
        try:
            return await self.run(timers_api.MOVE, id_, body=asked, query=_of(app), course=course)
        except AlreadyEnded as ended:
            if not course.lost or ended.details.get("state") == "cancelled":
                raise
            return await self.timer(id_, app=app)  # it was moved, and has fired since

    async def cancel_timer(self, id_: str, *, app: bool = False) -> Timer:
        """Let a timer not fire, or no more; twice is once. Raises `NoSuchTimer`,
        `AlreadyEnded`."""
        return await self.run(timers_api.CANCEL, id_, query=_of(app))

    async def resend(self, id_: str, *, app: bool = False) -> Timer:
        """Let the last firing of a timer, which has failed, be tried again with the same id.
        Raises `NoSuchTimer`, `NotFailed`."""
        course = Course()
        try:
            return await self.run(timers_api.RESEND, id_, query=_of(app), course=course)
        except NotFailed:
            if not course.lost:
                raise
            return await self.timer(id_, app=app)

    # Endpoints.

    async def make_endpoint(
        self,
        url: str,
        id_: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        description: str | None = None,
        disabled: bool | None = None,
        secret: str | None = None,
        retry: Mapping[str, Any] | None = None,
    ) -> CreatedEndpoint:
        """Make an endpoint, once for its id; it comes with its secret. Raises `BadInput`,
        `KeyReused`."""
        asked = {
            "id": self.ids.new() if id_ is None else id_,
            "url": url,
            "headers": _headers(headers),
            "description": description,
            "disabled": disabled,
            "secret": secret,
            "retry": read_policy(retry),
        }
        return await self.run(endpoints_api.CREATE, body=_given(asked))

    async def endpoint(self, id_: str, *, secret: bool = False) -> Endpoint:
        """An endpoint, with the secrets that count if they are asked for. That of bare URLs is
        called `default`. Raises `NoSuchEndpoint`."""
        query = {"secret": "true"} if secret else None
        return await self.run(endpoints_api.GET, id_, query=query)

    async def endpoints(
        self, *, after: str | None = None, limit: int = 100
    ) -> tuple[list[Endpoint], str | None]:
        """Endpoints in the order of their ids, and after which one the next ones come."""
        query = _given({"after": after, "limit": limit})
        found = await self.run(endpoints_api.LIST, query=query)
        return found.endpoints, found.next

    async def change_endpoint(self, id_: str, **changes: Any) -> Endpoint:
        """Change url, headers, description, disabled or retry; the rest stays. Raises
        `NoSuchEndpoint`, `BadInput`."""
        if "retry" in changes:
            changes["retry"] = read_policy(changes["retry"])
        return await self.run(endpoints_api.UPDATE, id_, body=changes)

    async def remove_endpoint(self, id_: str) -> None:
        """Forget an endpoint; twice is once."""
        with suppress(NoSuchEndpoint):
            await self.run(endpoints_api.DELETE, id_)

    async def rotate_secret(
        self, id_: str, *, overlap_s: float = _DAY_S, secret: str | None = None
    ) -> Endpoint:
        """Sign with a new secret, and for `overlap_s` with the one before, too. Raises
        `NoSuchEndpoint`, `BadInput`."""
        asked = {
            "overlap_ms": milliseconds(overlap_s, "a time to overlap"),
            # Made up here, so that asking again is asking for the same one.
            "secret": new_secret(self.ids) if secret is None else secret,
        }
        return await self.run(endpoints_api.ROTATE, id_, body=asked)

    async def test_endpoint(self, id_: str) -> Timer:
        """Send a signed test call; returns its timer, which says what came of it. Raises
        `NoSuchEndpoint`."""
        return await self.run(endpoints_api.TEST, id_, key=self.ids.new())


def _headers(headers: Mapping[str, str] | None) -> dict[str, str] | None:
    if not isinstance(headers, Mapping | None):
        raise BadInput(f"headers are names with their values, not {type(headers).__name__}")
    return None if headers is None else dict(headers)


def _when(at: Time | None, delay_s: float | None) -> dict[str, Any]:
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise BadInput(f"{at} may be any time: give it a time zone")
        at = at.isoformat()
    return {"at": at, "delay_ms": None if delay_s is None else milliseconds(delay_s, "a delay")}


def _of(app: bool) -> dict[str, Any]:
    return {"app": "true"} if app else {}


def _given(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
