"""Leases that expire: one holder at a time, with exact expiry."""

import random
from itertools import pairwise
from typing import Any, Final, NamedTuple

from onceward.store.transaction import Transaction
from onceward.testing.simulation.history import Call, History, violated
from onceward.testing.simulation.network import Message
from onceward.testing.simulation.scenario import Scenario
from onceward.testing.simulation.world import Node

_TTLS_MS: Final = (200, 1_000, 5_000, 20_000)
_LONG_NS: Final = 30_000_000_000
"""Longer operations may have been overtaken by the removal of expired records."""


class Grant(NamedTuple):
    """A lease as shown in a response, by the clock of the node that granted it."""

    token: str
    now_ms: int
    expires_at_ms: int


class Leases(Scenario):
    """A lease is a record that expires; a caller that finds none takes it."""

    def setup(self, random: random.Random) -> None:
        self.count = random.randint(1, 2)
        self.ttl_ms = random.choice(_TTLS_MS)

    def request(self, random: random.Random) -> Any:
        what = "take" if random.random() < 0.7 else "look"
        return (what, random.randrange(self.count), random.random() < 0.3)

    async def handle(self, node: Node, message: Message) -> Any:
        token = node.token(message)
        return await node.run(lambda tx: self._take(tx, message, token))

    async def _take(self, tx: Transaction, message: Message, token: str) -> Any:
        what, number, cached = message.request
        key = ("lease", str(number))
        lease = await tx.get(key, cached=cached)
        if lease is None and what == "take":
            lease = [token, tx.now_ms, tx.now_ms + self.ttl_ms]
            tx.put(key, lease, expires_at_ms=lease[2])
        return [tx.now_ms, lease]

    def judge(self, history: History) -> None:
        for number in range(self.count):
            calls = [call for call in history.calls if call.request[1] == number]
            order = self._grants(calls)
            for one, other in pairwise(order):
                if other.now_ms < one.expires_at_ms:
                    violated("two holders", f"lease {number}: {one} and {other}")
            self._judge_time(history, calls, order)
            self._judge_absence(calls, order)

    def _grants(self, calls: list[Call]) -> list[Grant]:
        grants: dict[str, Grant] = {}
        for call in calls:
            for answer in call.answers:
                now_ms, lease = answer.body
                if lease is None:
                    continue
                grant = Grant(*lease)
                if grant.expires_at_ms <= now_ms:
                    violated("expired", f"{call.id} saw {grant} at {now_ms}: over")
                mine = grant.token.startswith(call.id + "@")
                if not mine or answer.returned_ns - call.called_ns < _LONG_NS:
                    grants[grant.token] = grant
        return sorted(grants.values(), key=lambda grant: grant.now_ms)

    def _judge_time(self, history: History, calls: list[Call], order: list[Grant]) -> None:
        """By the clients' clock, a lease must not be granted before the previous one has ended."""
        called = {call.id: call for call in calls}
        slack_ns = (2 * history.clock_error_ms + 1) * 1_000_000
        for one, other in pairwise(order):
            from_ns = called[one.token.split("@")[0]].called_ns
            call = called[other.token.split("@")[0]]
            for answer in call.answers:
                early_ns = from_ns + self.ttl_ms * 1_000_000 - slack_ns - answer.returned_ns
                if answer.body[1] is not None and answer.body[1][0] == other.token and early_ns > 0:
                    violated("early", f"{other} was granted {early_ns / 1e9} s before {one} ended")

    def _judge_absence(self, calls: list[Call], order: list[Grant]) -> None:
        """A granted lease must be visible to all later reads until it ends."""
        known_ns: dict[str, int] = {}
        for call in calls:
            for answer in call.answers:
                if answer.body[1] is not None:
                    token = answer.body[1][0]
                    known_ns[token] = min(
                        answer.returned_ns, known_ns.get(token, answer.returned_ns)
                    )
        for call in calls:
            for answer in call.answers:
                now_ms, lease = answer.body
                if lease is not None or answer.returned_ns - call.called_ns > _LONG_NS:
                    continue
                for grant in order:
                    if known_ns[grant.token] < call.called_ns and now_ms < grant.expires_at_ms:
                        violated("lost", f"{call.id} at {now_ms} did not see {grant}")
