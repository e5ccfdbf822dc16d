"""Simulated workers: correct, slow, crashing and late ones."""

import asyncio
import random
from functools import partial
from typing import Any, Final

from onceward import node as service
from onceward.errors import OncewardError, StaleToken
from onceward.job_options import JobOptions
from onceward.keys import Key
from onceward.schedule import Claim
from onceward.store.transaction import Transaction
from onceward.testing.simulation.world import Node

_LEASES_MS: Final = (300, 1_000, 3_000)
# From this attempt on a job is processed correctly, so that all jobs end eventually.
_ATTEMPTS_BAD: Final = 3


class Worker:
    """Claims jobs of a queue in batches, and handles them correctly or not.

    It records each action on a job in the same commit, under `act` and a unique name, and sends the
    responses that it received to the checks.
    """

    def __init__(self, node: Node, running: service.Node, name: str, queue: str, seed: int) -> None:
        self.name = name
        self.node = node
        self.running = running
        self._queue = queue
        self._random = random.Random(seed)
        self._acts = 0

    async def run(self) -> None:
        """Work until the node ends."""
        while True:
            lease_ms = self._random.choice(_LEASES_MS)
            claims = await self._claim(lease_ms)
            for claim in claims:
                told = [claim.id, claim.attempt, claim.token, claim.lease_until_ms]
                self.node.tell("claimed", told)
            for claim in claims:
                await self._work(claim, lease_ms)
            if not claims:
                await self.node.clock.sleep(self._random.random())

    async def _claim(self, lease_ms: int) -> list[Claim]:
        draw = self._random
        most, wait_s = draw.choice((1, 1, 2, 4)), draw.choice((0.0, 1.0, 10.0))
        patience_s = draw.random() if draw.random() < 0.2 else None
        try:
            async with asyncio.timeout(patience_s):
                return await self.running.claims.claim(
                    self._queue, self.name, lease_ms=lease_ms, most=most, wait_s=wait_s
                )
        except TimeoutError:
            pass
        except OncewardError as error:
            if not error.kind.retry:
                raise
        return []

    async def _work(self, claim: Claim, lease_ms: int) -> None:
        draw, lease_s = self._random, lease_ms / 1000
        good = claim.attempt > _ATTEMPTS_BAD
        what = "complete"
        if claim.attempt <= claim.body["fails"]:
            what = "fail"
        elif not good:
            [what] = draw.choices(
                ("complete", "fail", "release", "forget", "give up"), (70, 10, 8, 10, 2)
            )
        work_s = lease_s * draw.random() * (0.1 if good else draw.choice((0.1, 0.5, 2.0)))
        if not good and draw.random() < 0.2:
            for _ in range(draw.randint(1, 3)):
                await self.node.clock.sleep(lease_s * 0.8 * draw.random())
                # Sometimes for less than the remaining time: then nothing changes.
                if not await self._act("extend", claim, lease_ms=draw.choice(_LEASES_MS)):
                    return
        await self.node.clock.sleep(work_s)
        if what == "complete":
            first = draw.random() < 0.5
            await self._act(what, claim, follow_first=first)
        elif what != "forget":
            await self._act(what, claim)

    async def _act(self, what: str, claim: Claim, **options: Any) -> bool:
        """Perform an action on a claimed job, with retries until a response arrives. Returns False
        if the lease has ended."""
        while True:
            self._acts += 1
            act = f"{self.name}#{self._acts}"
            try:
                await self.node.run(partial(self.transact, act, what, claim, **options))
            except StaleToken:
                self.node.tell("refused", [act, what, claim.token])
                return False
            except OncewardError as error:
                if not error.kind.retry:
                    raise
                await self.node.clock.sleep(self._random.random() * 0.2)
                continue
            self.node.tell("did", [act, what, claim.token])
            return True

    async def transact(
        self,
        act: str,
        what: str,
        claim: Claim,
        tx: Transaction,
        *,
        lease_ms: int = 0,
        follow_first: bool = False,
    ) -> None:
        """Perform an action in one transaction."""
        schedule = self.running.schedule
        record: dict[str, Any] = {"what": what, "id": claim.id, "token": claim.token}
        if what == "complete":
            await self.complete(tx, claim, follow_first)
        elif what == "release":
            await schedule.release(tx, claim.id, claim.token)
        elif what == "extend":
            until_ms = await schedule.extend(tx, claim.id, claim.token, lease_ms)
            record["until_ms"] = until_ms
        else:
            due_ms = tx.now_ms + claim.body["pause_ms"]
            retry_ms = None if what == "give up" else due_ms
            await schedule.fail(tx, claim.id, claim.token, what, retry_ms)
            record["due_ms"] = due_ms
        tx.put(("act", act), record)

    async def complete(self, tx: Transaction, claim: Claim, follow_first: bool) -> None:
        """Complete a job, with its effects in the same commit."""
        schedule = self.running.schedule
        follow = await self._follow(tx, claim) if follow_first else None
        await schedule.complete(tx, claim.id, claim.token)
        if not follow_first:
            follow = await self._follow(tx, claim)
        await self.effect(tx, claim, follow)

    async def effect(self, tx: Transaction, claim: Claim, follow: str | None) -> None:
        """The effect of a job: a record, and an entry in the log of its order key."""
        effect = {"attempt": claim.attempt, "token": claim.token, "follow": follow}
        await _append(tx, ("effect", claim.id), effect)
        order_key = claim.options.order_key
        if order_key is not None:
            await _append(tx, ("log", f"{claim.queue}/{order_key}"), claim.id)

    async def _follow(self, tx: Transaction, claim: Claim) -> str | None:
        """Send another job with the same order key, if the body requests it."""
        if not claim.body["follow"]:
            return None
        body = {"fails": 0, "pause_ms": 0, "follow": False}
        order_key = claim.options.order_key
        id_ = await self.running.schedule.send(
            tx, claim.queue, body, JobOptions(order_key=order_key, attempts_max=0)
        )
        line = None if order_key is None else f"{claim.queue}/{order_key}"
        sent = {"id": id_, "line": line, "due_ms": 0, "attempts_max": 0}
        tx.put(("sent", f"after {claim.id}"), [sent])
        return id_


async def _append(tx: Transaction, key: Key, item: Any) -> None:
    items = await tx.get(key) or []
    items.append(item)
    tx.put(key, items)
