"""Credit intake as an application: intake of notifications, pulls, and delivery of results."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import msgspec

from apps.credit import calls
from apps.credit.application import Application, Pull, Repeat, body_of, key_of
from apps.credit.decision import Decide, Decision, Report, decision_of, report_of
from apps.credit.settings import Settings, admit, load_decide
from apps.credit.soap import Envelope, Notification
from onceward import (
    AlreadyEnded,
    App,
    BadInput,
    Fail,
    InDoubt,
    Job,
    NoSuchJob,
    NotDone,
    NotFailed,
    OncewardError,
    TooLarge,
    Transaction,
)

T = TypeVar("T")

logger = logging.getLogger("onceward.credit")

PULLS, RESULTS, NOTICES = "credit", "credit.results", "credit.notices"
STEP, DECISION = "pull", "decision"
# Log messages about a pull whose lease was lost: at the loss, and at the late response.
ANSWER_OWED = "its lease was lost while the bureau's response is pending"
LATE_ANSWER = "the bureau responded after the lease was lost,"
KINDS = ("decision", "tradelines", "verification")
STATUS = "status"
"""The kind of result that reports a pull without a report."""
# A notification takes four writes: key, job, queue entry and application record. This many fit into
# one commit, within the size limit.
_AT_ONCE = 24
_AT_ONCE_BYTES = 1_500_000
_ATTEMPTS = 20
# With doubling pauses, about half an hour.
_LATE_TRIES = 12
_REASON_CHARS_MAX = 1_000
_BY_CHARS_MAX = 200
_NUMBER_CHARS_MAX = 200
_WHY_CHARS_MAX = 500


class Credit:
    """The application. `app` is started, served and worked."""

    def __init__(
        self,
        settings: Settings,
        app: App | None = None,
        outside: Any = calls,
        decide: Decide | None = None,
    ) -> None:
        """`outside` has `pull` and `deliver`, like `calls`. `decide` replaces the function in the
        settings; only working processes need one. Raises `bad_settings`, `BadInput`."""
        self.settings = admit(settings)
        if decide is None and settings.work:
            decide = load_decide(settings.decide)
        self._decide = decide
        self._outside = outside
        self.app = app or App(
            settings.database,
            name=settings.name,
            slots=settings.slots,
            node_lease_s=settings.node_lease_s,
            drain_s=settings.drain_s,
        )
        self._late: set[asyncio.Task[None]] = set()
        # Keys are kept permanently. A repeated request for another pull, with the same key and
        # reason, is the same request.
        self.app.queue(
            PULLS,
            key_retention_s=None,
            job_retention_s=None,
            fingerprint=("reason",),
            attempts_max=_ATTEMPTS,
            retry_first_s=settings.retry_first_s,
            failure_queue=NOTICES,
            internal=True,
        )
        for queue in (RESULTS, NOTICES):
            self.app.queue(
                queue,
                attempts_max=_ATTEMPTS,
                retry_first_s=settings.retry_first_s,
                internal=True,
            )
        if settings.work:
            self.app.handler(PULLS, lease_s=settings.lease_s, concurrency=settings.concurrency)(
                self.work
            )
            self.app.handler(NOTICES, lease_s=settings.lease_s)(self.report)
            self.app.outbox(RESULTS, lease_s=settings.lease_s)(self.deliver)

    # Intake.

    async def accept(self, envelope: Envelope) -> list[Repeat]:
        """Store all notifications of an envelope; durable when this returns. Returns why each
        arrived.

        If it raises, some may have been stored; sending the envelope again is safe.
        """

        return await self._for_each(envelope, self._accept)

    async def note_unheard(self, envelope: Envelope, outcome: str) -> None:
        """Record that the acknowledgement of an envelope cannot have been received in time, and
        why."""

        async def note(tx: Transaction, organisation: str, came: Notification) -> None:
            key = key_of(organisation, came.opportunity)
            known = await tx.get(key, Application)
            if known is not None and known.unheard != outcome:
                known.unheard = outcome
                tx.put(key, known)

        await self._for_each(envelope, note)

    async def unheard(self, organisation: str, opportunities: Sequence[str]) -> dict[str, str]:
        """The records of late acknowledgements, by opportunity."""
        places = [key_of(organisation, id_) for id_ in opportunities]
        found = await self.app.run(lambda tx: tx.get_many(places, Application))
        return {one.opportunity: one.unheard for one in found if one is not None and one.unheard}

    async def _for_each(
        self,
        envelope: Envelope,
        fn: Callable[[Transaction, str, Notification], Awaitable[T]],
    ) -> list[T]:
        """Run a function on each notification, in as few commits as possible."""

        async def take(piece: Sequence[Notification], tx: Transaction) -> list[T]:
            await tx.fetch([key_of(envelope.organisation, one.opportunity) for one in piece])
            return [await fn(tx, envelope.organisation, one) for one in piece]

        async def commit(piece: Sequence[Notification]) -> list[T]:
            try:
                return await self.app.run(partial(take, piece))
            except TooLarge:
                # Records may be far larger than the notifications.
                if len(piece) == 1:
                    raise
                half = len(piece) // 2
                return [*await commit(piece[:half]), *await commit(piece[half:])]

        pieces = _pieces(envelope.notifications)
        # Concurrently, so that engines group the commits.
        taken = await asyncio.gather(*[commit(piece) for piece in pieces])
        return [one for some in taken for one in some]

    async def _accept(self, tx: Transaction, organisation: str, came: Notification) -> Repeat:
        key = key_of(organisation, came.opportunity)
        known = await tx.get(key, Application)
        if known is not None:
            # Record and job were written in one commit, so the job exists.
            repeat = known.note(came, tx.now_ms)
            if repeat != "redelivered":
                tx.put(key, known)
            return repeat
        receipt = await self.app.send(
            PULLS,
            body_of(organisation, came),
            key=came.opportunity,
            caller=organisation,
            tx=tx,
        )
        pull = Pull(receipt.id, tx.now_ms)
        tx.put(key, Application(came.opportunity, organisation, came.fields, [pull], [came.id]))
        return "first"

    async def pull_again(
        self, organisation: str, opportunity: str, *, reason: str, by: str, key: str
    ) -> Pull:
        """Request another pull for an application; requester and reason are recorded. Idempotent by
        key.

        Raises `NoSuchJob`, `AlreadyEnded` while a pull is running or in doubt, `KeyReused`,
        `BadInput`, and `TooLarge` if the record is full.
        """
        reason = reason.strip()
        if not 0 < len(reason) <= _REASON_CHARS_MAX:
            raise BadInput(
                f"a reason must have 1 to {_REASON_CHARS_MAX} characters", code="wrong_type"
            )

        async def fn(tx: Transaction) -> Pull:
            application = await self._application(tx, organisation, opportunity)
            body = {
                "organisation": organisation,
                "opportunity": opportunity,
                "fields": application.latest,
                "reason": reason,
            }
            receipt = await self.app.send(
                PULLS, body, key=f"{opportunity}/{key}", caller=organisation, tx=tx
            )
            if receipt.duplicate:
                return application.pull_of(receipt.id)
            last = application.pulls[-1].job
            state = (await self.app.job(last, tx=tx)).state
            if state not in ("succeeded", "failed", "cancelled"):
                raise AlreadyEnded(
                    f"the last pull for {opportunity} is {state}; wait for its end, or settle it",
                    state=state,
                )
            if state == "failed":
                # Otherwise a redrive of failed pulls would make a second pull.
                await self.app.cancel(last, f"pulled again: {reason}", tx=tx)
            if not application.has_room():
                raise TooLarge(f"too many pulls for {opportunity}; the record is full")
            pull = Pull(receipt.id, tx.now_ms, by[:_BY_CHARS_MAX], reason)
            application.pulls.append(pull)
            tx.put(key_of(organisation, opportunity), application)
            return pull

        return await self.app.run(fn)

    async def settle(
        self,
        organisation: str,
        opportunity: str,
        *,
        done: bool,
        report: Any = None,
        by: str,
        reason: str,
    ) -> Pull:
        """Settle the last pull of an application, which is in doubt: made, with this report, or not
        made.

        Operator, time and reason are stored in the record of its job. Raises `NoSuchJob`,
        `NotFailed` if it is not in doubt, `BadInput`.
        """
        reason = reason.strip()
        if not reason:
            raise BadInput("a settlement needs a reason", code="wrong_type")
        if done:
            try:
                report = msgspec.to_builtins(report_of(report))
            except msgspec.ValidationError as error:
                raise BadInput(f"invalid report: {error}", code="wrong_type") from error

        async def fn(tx: Transaction) -> Pull:
            application = await self._application(tx, organisation, opportunity)
            pull = application.pulls[-1]
            await self.app.queues.settle(
                pull.job, STEP, done=done, result=report, by=by, reason=reason, tx=tx
            )
            return pull

        return await self.app.run(fn)

    async def find(self, organisation: str, opportunity: str) -> Application:
        """Return the record of an application. Raises `NoSuchJob`."""
        return await self.app.run(lambda tx: self._application(tx, organisation, opportunity))

    async def _application(
        self, tx: Transaction, organisation: str, opportunity: str
    ) -> Application:
        known = await tx.get(key_of(organisation, opportunity), Application)
        if known is None:
            raise NoSuchJob(f"application {opportunity} not found")
        return known

    # Work.

    async def work(self, job: Job) -> dict[str, Any]:
        """Pull, decide, and send the results: once for each job."""
        await self._insist_on_pull(job)
        try:
            if self.settings.bureau_keys:
                recorded = await job.step(STEP, self._pull, job, job.id)
            else:
                recorded = await self._pull_once(job)
        except calls.Refused as refused:
            # The refusal is not recorded, so a redrive asks the bureau again.
            raise Fail(refused.message) from refused
        try:
            report = report_of(recorded)
        except msgspec.ValidationError as error:
            # An operator entered the report, and can do so again.
            await job.reopen(STEP, f"the entered report is invalid: {error}")
        decision = await self._decided(job, report)
        # From here on everything is one commit with the end of the job.
        organisation, opportunity = job.body["organisation"], job.body["opportunity"]
        application = await self._application(job.tx, organisation, opportunity)
        pull = application.pull_of(job.id)
        pull.report = report.number[:_NUMBER_CHARS_MAX]
        pull.outcome, pull.reasons = decision.outcome, decision.reasons
        pull.status, pull.why = "", ""
        job.tx.put(key_of(organisation, opportunity), application)
        for kind, value in zip(
            KINDS, (decision, report.tradelines, report.verification), strict=True
        ):
            result = {"opportunity": opportunity, "kind": kind, "pull": job.id, "value": value}
            # In order: results of an earlier pull are never delivered after those of a later one.
            await job.send(RESULTS, msgspec.to_builtins(result), order_key=opportunity)
        return {"report": report.number, "outcome": decision.outcome}

    async def _decided(self, job: Job, report: Report) -> Decision:
        """The decision of the operator's function. It is a step, so all attempts share one
        decision."""

        async def call() -> Decision:
            assert self._decide is not None  # loaded in processes that work
            fields: Mapping[str, str | None] = job.body["fields"]
            found = self._decide(report, fields)
            if inspect.isawaitable(found):
                found = await found
            try:
                return decision_of(found)
            except msgspec.ValidationError as error:
                raise Fail(f"the function {self.settings.decide or 'decide'}: {error}") from error

        return decision_of(await job.step(DECISION, call))

    async def report(self, notice: Job) -> str:
        """Report a failed or doubtful pull to Salesforce, with the reason. Notices may be late and
        out of order, so the current state is reported."""
        try:
            job = await self.app.job(notice.body["id"], tx=notice.tx)
            status = job.state
            if status not in ("failed", "in_doubt"):
                return f"not reported: the pull is now {status}"
            organisation, opportunity = _place_of(job.body)
            application = await self._application(notice.tx, organisation, opportunity)
            pull = application.pull_of(notice.body["id"])
        except NoSuchJob as unknown:
            return f"not reported: {unknown.message}"
        why = job.reason[:_WHY_CHARS_MAX]
        if (pull.status, pull.why) == (status, why):
            return "already reported"
        pull.status, pull.why = status, why
        notice.tx.put(key_of(organisation, opportunity), application)
        value = {"state": status, "reason": why}
        result = {"opportunity": opportunity, "kind": STATUS, "pull": pull.job, "value": value}
        await notice.send(RESULTS, result, order_key=opportunity)
        return f"reported as {status}"

    async def _insist_on_pull(self, job: Job) -> None:
        """Raise `Fail` for a job without an application record, or with a finished pull. Such a job
        was not sent by this application, and each pull costs money."""
        try:
            organisation, opportunity = _place_of(job.body)
            application = await self.find(organisation, opportunity)
        except NoSuchJob as unknown:
            raise Fail(f"{unknown.message}; no pull was made") from unknown
        pulls = [pull for pull in application.pulls if pull.job == job.id]
        if not pulls or pulls[0].outcome:
            raise Fail(f"application {opportunity} expects no pull by this job")

    async def deliver(self, job: Job) -> str:
        """Deliver one result to Salesforce, under the id of its job."""
        settings = self.settings
        answered: str = await self._outside.deliver(
            settings.salesforce,
            job.id,
            job.body,
            authorization=settings.salesforce_authorization,
        )
        return answered

    async def _pull_once(self, job: Job) -> Any:
        """Pull without idempotency keys: the intent is recorded before the call."""
        begun: list[asyncio.Task[Any]] = []

        async def pull() -> Any:
            begun.append(asyncio.create_task(self._pull(job, None), name=f"pull {job.id}"))
            return await asyncio.shield(begun[0])

        try:
            return await job.step(STEP, pull, at_most_once=True)
        except (Exception, asyncio.CancelledError) as error:
            if not isinstance(error, NotDone | InDoubt):
                # The lease is lost, but the bureau has responded, may still respond, or was not
                # asked. Its response settles the doubt.
                logger.warning("job %s: %s", job.id, ANSWER_OWED)
                late = asyncio.create_task(self._settle(job, begun), name=f"late {job.id}")
                self._late.add(late)
                late.add_done_callback(self._late.discard)
            raise

    async def _pull(self, job: Job, key: str | None) -> Any:
        return await self._outside.pull(
            self.settings.bureau,
            job.body["opportunity"],
            job.body["fields"],
            key=key,
            timeout_s=self.settings.bureau_timeout_s,
            authorization=self.settings.bureau_authorization,
        )

    async def _settle(self, job: Job, begun: "list[asyncio.Task[Any]]") -> None:
        """Settle the step with a late response, unless another attempt was made; or as not done if
        the call was never started."""
        told = "which settles it"
        try:
            report, done = None, False
            for pulling in begun:
                with suppress(NotDone):
                    report, done = await pulling, True
            await self._settle_as(job, done, report)
        except (NotFailed, BadInput) as settled:
            told = f"which is not needed: {settled.message}"
        except Exception as error:
            told = f"which cannot be recorded: {type(error).__name__}: {error}"
        logger.warning("job %s: %s %s", job.id, LATE_ANSWER, told)

    async def _settle_as(self, job: Job, done: bool, report: Any) -> None:
        """Settle with retries, because storage may be unavailable, which may have caused the
        delay."""
        for tries in range(_LATE_TRIES):
            try:
                await self.app.wait(job.id)
                return await self.app.queues.settle(
                    job.id,
                    STEP,
                    done=done,
                    result=report,
                    token=job.token,
                    reason="the bureau responded after the lease was lost",
                )
            except OncewardError as away:
                passing = away.kind.retry and away.code != "node_stopped"
                if not passing or tries == _LATE_TRIES - 1:
                    raise
            await self.app.store.clock.sleep(2**tries)


def _place_of(body: Any) -> tuple[str, str]:
    """The organisation and opportunity of a pull's job. Raises `NoSuchJob`."""
    named = body if isinstance(body, dict) else {}
    organisation, opportunity = named.get("organisation"), named.get("opportunity")
    if not (isinstance(organisation, str) and isinstance(opportunity, str)):
        raise NoSuchJob("the job names no application")
    return organisation, opportunity


def _pieces(notifications: list[Notification]) -> list[list[Notification]]:
    """Split notifications into groups that fit into one commit each, by number and size."""
    pieces: list[list[Notification]] = [[]]
    size_bytes = 0
    for one in notifications:
        one_bytes = sum(len(name) + 4 * len(text or "") for name, text in one.fields.items())
        if len(pieces[-1]) == _AT_ONCE or (pieces[-1] and size_bytes + one_bytes > _AT_ONCE_BYTES):
            pieces.append([])
            size_bytes = 0
        pieces[-1].append(one)
        size_bytes += one_bytes
    return pieces
