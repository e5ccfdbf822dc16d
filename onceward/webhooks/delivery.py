"""Delivery: makes the webhook calls of timers, with retries.

A call is a job of the webhook queue, and `webhook-id` is the id of that job. It is the same in all
attempts, so receivers can deduplicate. A slow or unavailable endpoint uses few workers; its waiting
calls are postponed, so it does not delay other endpoints.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from onceward import limits, tracing
from onceward.api.retries import RetryPolicy
from onceward.errors import (
    AlreadyEnded,
    BadInput,
    Fail,
    NoSuchEndpoint,
    NoSuchTimer,
    OncewardError,
    Retry,
    SecretUnreadable,
    Unreachable,
)
from onceward.extras import missing
from onceward.json_values import encode
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.webhooks import answers, endpoints, retries, signing, suspensions
from onceward.webhooks.answers import Answer, Outcome, Verdict
from onceward.webhooks.endpoints import Endpoint
from onceward.webhooks.host_waiters import HostWaiters
from onceward.webhooks.hosts import Hosts, Slot
from onceward.webhooks.http.addresses import Guard
from onceward.webhooks.receivers import HostKey, Receivers, Scope
from onceward.webhooks.retries import admit_policy, pauses_of
from onceward.webhooks.timers import WEBHOOKS, TimerTable, Webhook, open_headers
from onceward.work.asleep import Asleep
from onceward.work.attempt import Handler
from onceward.work.job import Job

if TYPE_CHECKING:
    from onceward.webhooks.http.sender import Sender

# The maximum age of a cached endpoint that selects the host to wait for.
_FRESH_NS = 1_000_000_000
# Methods whose requests have no body by default.
_BODILESS = ("GET", "DELETE")


@dataclass(frozen=True, kw_only=True)
class Outward:
    """Settings of webhook calls."""

    allow: Sequence[str] = ()
    """Private networks, hosts, and hosts with ports that may be called."""
    ports: Sequence[int] = (80, 443)
    rate: float = 0.0
    """The maximum number of calls per second of all nodes; 0 for no limit."""
    pauses_s: Sequence[float] = retries.PAUSES_S
    """The pause after each failed attempt, unless timer or endpoint specify it. The last one
    repeats."""
    attempts_max: int = retries.ATTEMPTS
    """The maximum number of attempts of a call, unless timer or endpoint specify it; 0 for no
    limit."""
    connect_s: float = limits.OUTWARD_CONNECT_S
    total_s: float = limits.OUTWARD_TOTAL_S
    concurrency: int = limits.OUTWARD_CALLS_MAX
    """The maximum number of concurrent calls of a node."""
    concurrency_per_host: int = limits.HOST_REQUESTS_MAX
    """The maximum number of concurrent calls to one receiver; fewer while it is slow or failing."""
    sender: "Callable[[Guard], Sender] | None" = None
    """For tests: replaces the HTTP sender."""


@dataclass(slots=True)
class Rate:
    """Counts of the calls of an endpoint, and of those that succeeded."""

    calls: int = 0
    delivered: int = 0


class Pause(NamedTuple):
    """A pause of this node's calls to a receiver that does not respond."""

    until_ms: int
    """The time of the next call; in the past if it is running."""
    failures: int
    """The number of calls in a row without a response."""


class Entered(NamedTuple):
    """A call that was admitted to its host, with its parameters."""

    endpoint: Endpoint
    headers: dict[str, str]
    host: HostKey
    slot: Slot


class Delivery:
    """Makes the webhook calls of one node."""

    def __init__(self, store: Store, timers: TimerTable, outward: Outward) -> None:
        """Raises `BadInput`, and `bad_settings` if the HTTP parser is not installed."""
        self._store = store
        self._timers = timers
        self._outward = outward
        self.guard = Guard(outward.allow, outward.ports)
        self._retry = RetryPolicy(pauses_of(outward.pauses_s), outward.attempts_max)
        admit_policy(self._retry)
        elapsed_ns, hands = store.clock.elapsed_ns, outward.concurrency
        # Reserve some workers for responding hosts, and for hosts other than the busiest.
        hosts = Hosts(
            store.ids.fraction,
            elapsed_ns,
            requests_max=min(outward.concurrency_per_host, max(hands // 2, 1)),
            doubtful_max=hands - hands // 4,
        )
        self._hosts = hosts
        self._lines = HostWaiters(hosts, elapsed_ns, hands // 4)
        self.receivers = Receivers(hosts, store.clock.now_ms)
        self._sender = (outward.sender or _load_sender())(self.guard)
        self.rates: dict[tuple[str, str], Rate] = {}
        """By caller and endpoint, since the start of this node. Limited to the first entries."""
        self._known: dict[tuple[str, str], tuple[Endpoint, int]] = {}
        for why in ("paused", "busy"):
            store.meters.count("webhooks_postponed", 0, reason=why)
        self._lateness = store.meters.histogram("webhook_lateness_seconds")

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the webhook queue. Its jobs are kept at least as long as their timers."""
        # The number of attempts depends on timer and endpoint: see `deliver`.
        return {"rate": self._outward.rate, "attempts_max": 0, "internal": True}

    @property
    def handler(self) -> Handler:
        """The handler for a worker of the webhook queue."""
        lease_ms = int((self._outward.total_s + limits.OUTWARD_SLACK_S) * 1_000)
        return Handler(WEBHOOKS, self.deliver, lease_ms, self._outward.concurrency)

    async def close(self) -> None:
        await self._sender.close()

    async def deliver(self, job: Job) -> dict[str, Any]:
        """Make a call; returns a summary of the response. Raises `Fail`, `Retry` or `Asleep`
        otherwise."""
        webhook = msgspec.convert(job.body, Webhook)
        id_ = webhook.call.endpoint or endpoints.DEFAULT
        endpoint, given, host, slot = await self._enter(webhook, id_)
        now_ms = self._store.clock.now_ms()
        if job.attempt == 1:
            self._lateness.observe(max(0, now_ms - webhook.due_ms) / 1_000)
        retry = webhook.call.policy.over(endpoint.retry).over(self._retry)
        answered: bool | None = None
        well, reason = False, ""
        try:
            if retry.attempts and job.attempt > retry.attempts:
                raise Fail(
                    f"attempt {job.attempt - 1}, the last, was interrupted; check whether the "
                    "receiver got it, and resend it if not"
                )
            timeout_s = (retry.timeout_ms or 0) / 1_000 or self._outward.total_s
            called = self._call(job, webhook, given, endpoint, now_ms, timeout_s)
            verdict = answers.judge(await called)
            answered, well, reason = verdict.answered, verdict.well, verdict.line
        finally:
            self._lines.leave(host, slot, answered, well=well, reason=reason)
        await self._note(webhook.caller, id_, endpoint, verdict)
        self._store.meters.count("webhooks", outcome=verdict.outcome)
        self._rate(webhook.caller, id_, verdict.outcome is Outcome.DELIVERED)
        if verdict.outcome is Outcome.DELIVERED:
            return {"said": verdict.line}
        if verdict.outcome is Outcome.AGAIN and not retry.is_last(job.attempt):
            pause_s = retry.pause_s(job.attempt, self._store.ids.fraction())
            after_s = max(pause_s, verdict.not_before_s or 0.0)
            if not answered:
                self._wait(webhook, id_, host, self._store.clock.now_ms() + int(after_s * 1_000))
            raise Retry(verdict.line, after_s=after_s)
        if verdict.outcome is Outcome.GONE:
            await self._end(webhook)
        raise Fail(verdict.line)

    def pause_of(self, caller: str, endpoint: str, url: str = "") -> Pause | None:
        """The pause of this node's calls to an endpoint or URL, or None."""
        if not url:
            known, _ = self._known.get((caller, endpoint), (None, 0))
            url = "" if known is None else known.url
        try:
            found = self._hosts.pause(self.guard.parse(url).key)
        except BadInput:
            return None
        if found is None:
            return None
        return Pause(self._store.clock.now_ms() + int(found.wait_s * 1_000), found.failures)

    def _wait(self, webhook: Webhook, id_: str, host: HostKey, until_ms: int) -> None:
        scope = Scope("timer", webhook.timer) if webhook.call.url else Scope("endpoint", id_)
        self.receivers.wait(webhook.caller, host, scope, until_ms)

    def _given(self, webhook: Webhook, endpoint: Endpoint) -> dict[str, str]:
        """The headers of a call. While they or the secrets cannot be decrypted, the call waits
        without an attempt."""
        try:
            if not endpoint.suspended:
                server_keys = self._store.server_keys
                own = open_headers(webhook.call, server_keys, webhook.caller, webhook.timer)
                return {**endpoint.headers, **own}
        except SecretUnreadable:
            pass
        raise Asleep("", self._store.clock.now_ms() + limits.SUSPENDED_MS)

    async def _call(
        self,
        job: Job,
        webhook: Webhook,
        given: dict[str, str],
        endpoint: Endpoint,
        now_ms: int,
        timeout_s: float,
    ) -> Answer | OncewardError:
        headers = {name.lower(): value for name, value in given.items()}
        method = webhook.call.method
        body = b""
        if method not in _BODILESS or webhook.call.body is not None:
            headers = {"content-type": "application/json", **headers}
            body = _body(webhook, headers["content-type"])
        headers["onceward-timer"] = quote(webhook.timer)
        secrets = endpoint.secrets_at(now_ms)
        headers |= signing.headers(secrets, webhook.id or job.id, now_ms // 1_000, body)
        url = _url(webhook, endpoint)
        with tracing.calling(method, url, job.attempt) as span:
            if span.trace is not None:
                headers = {**span.trace.headers, **headers}
            try:
                answer = await self._sender.send(
                    url,
                    headers,
                    body,
                    method=method,
                    connect_s=min(self._outward.connect_s, timeout_s),
                    total_s=timeout_s,
                )
            except (Unreachable, BadInput) as error:
                span.failed(error)
                return error
            span.answered(answer.status, failed=answer.status >= 400)
            return answer

    async def _enter(self, webhook: Webhook, id_: str) -> Entered:
        """Admit a call to its host; returns the endpoint as read after the wait.

        A change that the API has acknowledged therefore applies to every later call on all nodes.
        Raises `Asleep` if the host is busy, and `Fail` if there is nothing to call.
        """
        key = webhook.caller, id_
        # The cached endpoint may be stale; it only selects the host to wait for.
        endpoint, _ = self._known.get(key) or (await self._endpoint(*key), 0)
        while True:
            host = self._host(webhook, endpoint)
            slot = await self._lines.enter(host)
            if not isinstance(slot, Slot):
                if self._is_fresh(key):
                    paused = self._hosts.pause(host) is not None
                    why = "paused" if paused else "busy"
                    self._store.meters.count("webhooks_postponed", reason=why)
                    until_ms = self._store.clock.now_ms() + int(slot * 1_000) + 1
                    if paused:
                        self._wait(webhook, id_, host, until_ms)
                    raise Asleep("", until_ms)
                endpoint = await self._endpoint(*key)
                continue
            admitted = False
            try:
                endpoint = await self._endpoint(*key)
                if endpoint.disabled and endpoint.waits:
                    raise Asleep("", self._store.clock.now_ms() + limits.DISABLED_MS)
                if endpoint.disabled:
                    raise Fail(f"endpoint {id_} is disabled; enable it and resend the timer")
                given = self._given(webhook, endpoint)
                admitted = self._host(webhook, endpoint) == host
                if admitted:
                    return Entered(endpoint, given, host, slot)
            finally:
                if not admitted:
                    self._lines.leave(host, slot, None)

    def _is_fresh(self, key: tuple[str, str]) -> bool:
        _, read_ns = self._known.get(key, (None, 0))
        return self._store.clock.elapsed_ns() - read_ns < _FRESH_NS

    def _host(self, webhook: Webhook, endpoint: Endpoint) -> HostKey:
        try:
            return self.guard.parse(_url(webhook, endpoint)).key
        except BadInput as refused:
            raise Fail(refused.message) from refused

    async def _endpoint(self, caller: str, id_: str) -> Endpoint:
        try:
            endpoint = await self._store.run(lambda tx: self._find(tx, caller, id_))
        except NoSuchEndpoint as gone:
            raise Fail(gone.message) from gone
        if len(self._known) >= limits.ENDPOINTS_KNOWN_MAX:
            self._known.clear()
        self._known[caller, id_] = endpoint, self._store.clock.elapsed_ns()
        return endpoint

    async def _find(self, tx: Transaction, caller: str, id_: str) -> Endpoint:
        suspension = await suspensions.get(tx, caller)
        passed = {caller}
        while suspension is not None and suspension.to not in ("", *passed):
            caller = suspension.to  # the new owner of its endpoints
            passed.add(caller)
            suspension = await suspensions.get(tx, caller)
        endpoint = await self._known_to(tx, caller, id_)
        return endpoint if suspension is None else replace(endpoint, suspended=True)

    async def _known_to(self, tx: Transaction, caller: str, id_: str) -> Endpoint:
        if id_ == endpoints.DEFAULT:
            return await default_endpoint(tx, self._store, caller)
        return await endpoints.get(tx, id_, caller=caller)

    def _rate(self, caller: str, id_: str, delivered: bool) -> None:
        rate = self.rates.get((caller, id_))
        if rate is None:
            if len(self.rates) >= limits.ENDPOINTS_KNOWN_MAX:
                return
            rate = self.rates[caller, id_] = Rate()
        rate.calls += 1
        rate.delivered += delivered

    async def _end(self, webhook: Webhook) -> None:
        """End a recurring timer whose receiver accepts no further calls."""
        try:
            await self._store.run(
                lambda tx: self._timers.cancel(tx, webhook.timer, caller=webhook.caller)
            )
        except (NoSuchTimer, AlreadyEnded):
            pass  # a one-time timer

    async def _note(self, caller: str, id_: str, endpoint: Endpoint, verdict: Verdict) -> None:
        """Record that an endpoint has started to fail, or to respond again."""
        failing = verdict.outcome is not Outcome.DELIVERED
        if id_ != endpoints.DEFAULT and endpoint.health.failing != failing:
            endpoint.health.failing = failing
            await self._store.run(
                lambda tx: endpoints.note(
                    tx, id_, failing=failing, said=verdict.line, caller=caller
                )
            )


async def default_endpoint(tx: Transaction, store: Store, caller: str) -> Endpoint:
    """The endpoint whose secrets sign calls to plain URLs; created if it is missing."""
    try:
        return await endpoints.get(tx, endpoints.DEFAULT, caller=caller)
    except NoSuchEndpoint:
        secret = signing.new_secret(store.ids)
        return await endpoints.put(tx, endpoints.DEFAULT, "", secret, caller=caller)


def _load_sender() -> "Callable[[Guard], Sender]":
    try:
        # Imported here because applications without webhooks do not need it.
        from onceward.webhooks.http.sender import Sender
    except ModuleNotFoundError as error:
        if (needed := missing(error)) is None:
            raise
        raise OncewardError(f"webhook calls need {needed}", code="bad_settings") from error
    return Sender


def _url(webhook: Webhook, endpoint: Endpoint) -> str:
    url = webhook.call.url or endpoint.url
    if not webhook.call.append_id:
        return url
    path, mark, query = url.partition("?")
    return f"{path.rstrip('/')}/{quote(webhook.timer, safe='')}{mark}{query}"


def _body(webhook: Webhook, content_type: str) -> bytes:
    """Encode a body: text with its own content type unchanged, everything else as JSON."""
    body = webhook.call.body
    kind = content_type.partition(";")[0].strip().lower()
    if isinstance(body, str) and kind != "application/json" and not kind.endswith("+json"):
        return body.encode()
    if body is None:
        body = {"id": webhook.timer, "due_ms": webhook.due_ms, "number": webhook.number}
    return encode(body, (WEBHOOKS, "body"))
