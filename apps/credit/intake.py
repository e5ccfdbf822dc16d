"""The HTTP interface: outbound messages, application records, and operator actions.

    POST /credit/soap/SECRET                    an outbound message; or /credit/soap with client
                                                certificates
    GET  /credit/soap/SECRET                    its WSDL
    GET  /credit/applications/ORG/ID            the record of an application
    POST /credit/applications/ORG/ID/pulls      pull again, with a reason
    POST /credit/applications/ORG/ID/settle     settle a pull in doubt, with a reason

An acknowledgement is sent when the whole message is durable. Response times and causes of repeats
are counted for each sender; `/v1/senders` and `/metrics` show them.
"""

import asyncio
import hmac
import logging
from collections import Counter
from contextlib import suppress
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from apps.credit import limits, soap
from apps.credit.application import Application, Pull, Repeat
from apps.credit.credit import PULLS, Credit
from apps.credit.deliveries import Cause, Deliveries, Outcome, outcome_of
from apps.credit.errors import BAD_ENVELOPE, WRONG_ORGANISATION
from apps.credit.outbound import wsdl
from apps.credit.record_id import long_id
from onceward import BadInput, Caller, OncewardError
from onceward import limits as core_limits
from onceward.web import Request, Response, Route, Server, Site, parse

logger = logging.getLogger("onceward.credit")

PREFIX = "/credit"
_CAUSE_OF: dict[Repeat, Cause] = {"fresher": "fields", "again": "again"}
_KEY_CHARS_MAX = 200


class Ask(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A request for another pull."""

    reason: Annotated[str, Meta(min_length=1)]


class Asked(msgspec.Struct):
    """The requested pull."""

    job: str
    asked_ms: int
    by: str
    reason: str


class Settle(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The outcome of a pull in doubt."""

    done: bool
    reason: Annotated[str, Meta(min_length=1, max_length=core_limits.SETTLEMENT_REASON_CHARS_MAX)]
    report: Any = None
    """The bureau's report, if the pull was made."""


class View(msgspec.Struct):
    """An application and, for each of its pulls, the state of its job, the reason and the
    settlement."""

    application: Application
    states: list[str]
    reasons: list[str]
    settled: list[list[dict[str, Any]]]


class Intake(Site):
    """The routes of a `Credit`, mounted at `PREFIX`."""

    def __init__(self, credit: Credit) -> None:
        super().__init__(ROUTES, self)
        self.credit = credit
        self.deliveries = Deliveries()
        credit.app.mount(PREFIX, self)

    def refusal(self, error: OncewardError) -> Response:
        """The response to an envelope that is too large to be read."""
        return _fault(BadInput(error.message, code=BAD_ENVELOPE))

    # Messages.

    async def receive(self, request: Request) -> Response:
        """Receive an outbound message. The response is an acknowledgement or a SOAP fault; without
        the secret, 404."""
        app, begun_ns = self.credit.app, self.credit.app.store.clock.elapsed_ns()
        self._insist_secret(request)
        try:
            self._insist_certificate(request)
            envelope = soap.read(await self._body(request))
            organisation = envelope.organisation
            if organisation not in self.credit.settings.organisations:
                raise OncewardError(
                    "messages of this organisation are not accepted here", code=WRONG_ORGANISATION
                )
            await self._deliver(request, envelope, begun_ns)
        except OncewardError as error:
            app.meters.count("credit_refused", code=error.code)
            logger.warning("rejected an outbound message: %s", error)
            return _fault(error)
        return Response(200, soap.ACK, soap.CONTENT_TYPE)

    async def _deliver(self, request: Request, envelope: soap.Envelope, begun_ns: int) -> None:
        """Store an envelope, and record its duration and why its notifications arrived."""
        app, organisation = self.credit.app, envelope.organisation
        ids = Counter(one.id for one in envelope.notifications)
        causes = self.deliveries.begin(organisation, ids, begun_ns)
        gone = asyncio.ensure_future(request.gone())
        outcome: Outcome = "failed"
        twice = {id_ for id_, times in ids.items() if times > 1}
        try:
            repeats = await self.credit.accept(envelope)
            took_s = (app.store.clock.elapsed_ns() - begun_ns) / 1e9
            outcome = outcome_of(took_s, gone.done())
        finally:
            gone.cancel()
            twice |= self.deliveries.end(organisation, ids, outcome, begun_ns)
        for id_ in twice - causes.keys():
            causes[id_] = "early"
        app.meters.histogram("credit_ack_seconds", organisation=organisation).observe(took_s)
        app.senders.acknowledged(PULLS, Caller("app", "", organisation).id, took_s)
        await self._count(envelope, repeats, causes)
        if outcome != "acknowledged":
            # The sender has stopped waiting, so this delays nothing.
            logger.warning(
                "an acknowledgement for %s did not arrive in time (%s, after %.1f s); the sender "
                "will repeat the message",
                *(organisation, outcome, took_s),
            )
            with suppress(OncewardError):  # everything is stored: the response stays the same
                await self.credit.note_unheard(envelope, outcome)

    async def _count(
        self, envelope: soap.Envelope, repeats: list[Repeat], causes: dict[str, Cause]
    ) -> None:
        app, organisation = self.credit.app, envelope.organisation
        came = list(zip(envelope.notifications, repeats, strict=True))
        strangers = {
            one.opportunity
            for one, repeat in came
            if repeat == "redelivered" and one.id not in causes
        }
        noted: dict[str, str] = {}
        if strangers:
            with suppress(OncewardError):
                noted = await self.credit.unheard(organisation, sorted(strangers))
        for one, repeat in came:
            app.meters.count("credit_notifications", organisation=organisation, why=repeat)
            cause: str | None = _CAUSE_OF.get(repeat) or causes.get(one.id)
            if repeat == "first" and cause != "failed":
                continue  # the earlier delivery stored nothing, or is counted itself
            cause = cause or noted.get(one.opportunity, "unknown")
            app.meters.count("credit_repeats", organisation=organisation, cause=cause)
            app.senders.repeated(PULLS, Caller("app", "", organisation).id, cause)

    async def describe(self, request: Request) -> Response:
        """Return the WSDL, for senders with access."""
        self._insist_secret(request)
        try:
            self._insist_certificate(request)
        except OncewardError as error:
            return _fault(error)
        host = request.header(b"host") or "localhost"
        path = request.scope["path"]
        return Response(200, wsdl(f"{_scheme(request)}://{host}{path}"), soap.CONTENT_TYPE)

    async def _body(self, request: Request) -> bytes:
        try:
            return await request.body(limits.SOAP_BYTES_MAX, "text/xml")
        except BadInput as refused:
            raise BadInput(refused.message, code=BAD_ENVELOPE) from refused

    def _insist_secret(self, request: Request) -> None:
        told, secret = request.parameters.get("secret", ""), self.credit.settings.secret
        if not hmac.compare_digest(told.encode(), secret.encode()):
            raise BadInput("there is nothing at this path", code="not_found")

    def _insist_certificate(self, request: Request) -> None:
        settings = self.credit.settings
        if not settings.certificates:
            return
        told = request.header(settings.certificate_header.lower().encode()) or ""
        if told and not _from_proxy(request):
            # Anyone can send this header, and a certificate's fingerprint is not secret.
            raise OncewardError(
                "the header with the fingerprint of the client certificate is accepted only from "
                "addresses in the setting `proxies`",
                code="not_allowed",
            )
        told = told.replace(":", "").lower()
        if not any(
            hmac.compare_digest(told.encode(), one.encode()) for one in settings.certificates
        ):
            raise OncewardError("unknown client certificate", code="not_allowed")

    # Operators.

    async def show(self, request: Request) -> Response:
        organisation, opportunity = self._place(request)
        application = await self.credit.find(organisation, opportunity)
        jobs = [await self.credit.app.job(pull.job) for pull in application.pulls]
        return Response.of(
            View(
                application,
                [job.state for job in jobs],
                ["" if job.state == "succeeded" else job.reason for job in jobs],
                [[msgspec.structs.asdict(one) for one in job.settled] for job in jobs],
            )
        )

    async def settle(self, request: Request) -> Response:
        organisation, opportunity = self._place(request)
        said = parse(await request.body(), Settle)
        by = request.scope["onceward"].caller(request).id
        pull: Pull = await self.credit.settle(
            organisation,
            opportunity,
            done=said.done,
            report=said.report,
            by=by,
            reason=said.reason,
        )
        return Response.of(Asked(pull.job, pull.asked_ms, by, said.reason))

    async def pull_again(self, request: Request) -> Response:
        organisation, opportunity = self._place(request)
        key = request.header(b"idempotency-key") or ""
        if not 0 < len(key) <= _KEY_CHARS_MAX:
            raise BadInput(
                f"send an Idempotency-Key of 1 to {_KEY_CHARS_MAX} characters, so that a repeated "
                "request does not pull twice",
                code="missing_key",
            )
        ask = parse(await request.body(), Ask)
        by = request.scope["onceward"].caller(request).id
        pull: Pull = await self.credit.pull_again(
            organisation, opportunity, reason=ask.reason, by=by, key=key
        )
        return Response.of(Asked(pull.job, pull.asked_ms, pull.by, pull.reason), 202)

    def _place(self, request: Request) -> tuple[str, str]:
        """The requested application, for callers that may manage the queue of pulls."""
        caller: Any = request.scope["onceward"].caller(request)
        caller.insist("manage", PULLS)
        try:
            return long_id(request.parameters["organisation"]), long_id(request.parameters["id"])
        except BadInput as refused:
            raise BadInput(refused.message, code="bad_parameter") from refused


ROUTES = [
    Route("POST", "/soap/{secret}", Intake.receive, "Receive an outbound message"),
    Route("GET", "/soap/{secret}", Intake.describe, "The WSDL of the endpoint"),
    Route("POST", "/soap", Intake.receive, "Receive an outbound message with a client certificate"),
    Route("GET", "/soap", Intake.describe, "The WSDL of the endpoint"),
    Route("GET", "/applications/{organisation}/{id}", Intake.show, "Show an application"),
    Route("POST", "/applications/{organisation}/{id}/pulls", Intake.pull_again, "Pull again"),
    Route("POST", "/applications/{organisation}/{id}/settle", Intake.settle, "Settle a pull"),
]


def _scheme(request: Request) -> str:
    """The scheme of the sender's request. X-Forwarded-Proto is trusted only from proxies in the
    setting `proxies`, which terminate TLS."""
    told = (request.header(b"x-forwarded-proto") or "").rpartition(",")[2].strip().lower()
    if told in ("http", "https") and _from_proxy(request):
        return told
    scheme: str = request.scope.get("scheme", "http")
    return scheme


def _from_proxy(request: Request) -> bool:
    """Whether the peer of the connection is in the setting `proxies`."""
    client = request.scope.get("client")
    server: Server = request.scope["onceward"]
    return server.connections.is_proxy(str(client[0])) if client else False


def _fault(error: OncewardError) -> Response:
    if error.kind.status >= 500:
        # Messages of the storage are only for the log.
        error = OncewardError(f"{error.kind.title}.", code=error.code)
    return Response(error.kind.status, soap.fault(error), soap.CONTENT_TYPE)
