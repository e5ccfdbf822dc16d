"""Transfers between accounts: each takes effect once, and the total is constant."""

import random
from collections.abc import Sequence
from typing import Any, Final

from onceward.keys import Key
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.testing.simulation.core.reading import WAYS, read
from onceward.testing.simulation.history import (
    Call,
    History,
    Span,
    check_real_time,
    violated,
)
from onceward.testing.simulation.network import Message
from onceward.testing.simulation.scenario import Scenario
from onceward.testing.simulation.world import Node

_START: Final = 100


class Accounts(Scenario):
    """Transfers with a record of their id, and audits that read all accounts.

    An account counts its changes, so that responses show their order.
    """

    def setup(self, random: random.Random) -> None:
        self.count = random.randint(2, 4)

    async def prepare(self, store: Store) -> None:
        async def open_accounts(tx: Transaction) -> None:
            for number in range(self.count):
                tx.put(_account(number), [0, _START])

        await store.run(open_accounts)

    def request(self, random: random.Random) -> Any:
        if random.random() < 0.3:
            return ("audit", random.choice((*WAYS, "scan")), random.random() < 0.5)
        giver, taker = random.sample(range(self.count), 2)
        return ("transfer", giver, taker, random.randint(1, 80), random.choice(WAYS))

    async def handle(self, node: Node, message: Message) -> Any:
        if message.request[0] == "audit":
            return await node.run(lambda tx: self._audit(tx, message))
        return await node.run(lambda tx: self.transfer(tx, message))

    async def transfer(self, tx: Transaction, message: Message) -> Any:
        _, giver, taker, amount, way = message.request
        answer = await tx.get(_transfer(message.id))
        if answer is not None:
            return answer
        giver_key, taker_key = _account(giver), _account(taker)
        given, taken = await read(tx, [giver_key, taker_key], way)
        if given[1] < amount:
            answer = {"short": given}
        else:
            given, taken = [given[0] + 1, given[1] - amount], [taken[0] + 1, taken[1] + amount]
            tx.put(giver_key, given)
            tx.put(taker_key, taken)
            answer = {"given": given, "taken": taken}
        tx.put(_transfer(message.id), answer)
        return answer

    async def _audit(self, tx: Transaction, message: Message) -> Any:
        _, way, signed = message.request
        if way == "scan":
            balances = [row.value for row in await tx.scan("account", check=True)]
        else:
            balances = await read(tx, [_account(number) for number in range(self.count)], way)
        if signed:
            # With this write it is not read-only, but its reads must be consistent all the same.
            tx.put(("audit", message.id), balances)
        return balances

    def judge(self, history: History) -> None:
        recorded = history.values("transfer")
        transfers = [call for call in history.calls if call.request[0] == "transfer"]
        for call in transfers:
            for answer in call.answers:
                record = recorded.get(call.id)
                if answer.body != record:
                    violated("lost", f"{call.id} got {answer.body}, but the record is {record}")
        chains = [_Chain(history, number, transfers, recorded) for number in range(self.count)]
        for call in history.calls:
            if call.request[0] == "audit":
                for answer in call.answers:
                    span = Span(call.called_ns, answer.returned_ns, call.id)
                    for chain, seen in zip(chains, answer.body, strict=True):
                        chain.check_read(seen, span)
                    if sum(balance for _, balance in answer.body) != _START * self.count:
                        violated("torn read", f"{call.id} saw {answer.body}: money made or lost")


class _Chain:
    """All changes of one account in order, replayed."""

    def __init__(
        self, history: History, number: int, transfers: list[Call], recorded: dict[str, Any]
    ) -> None:
        self.number = number
        changes: dict[int, tuple[int, int, Span]] = {}
        short: list[tuple[Any, int, Span]] = []
        for call in transfers:
            _, giver, taker, amount, _ = call.request
            answer = recorded.get(call.id)
            if answer is None or number not in (giver, taker):
                continue
            span = Span(call.called_ns, call.returned_ns, call.id)
            if "short" in answer:
                if number == giver:
                    short.append((answer["short"], amount, span))
                continue
            side, sign = ("given", -1) if number == giver else ("taken", 1)
            change, balance = answer[side]
            if change in changes:
                violated(
                    "lost update",
                    f"{call.id} and {changes[change][2].name} both made change {change} "
                    f"of account {number}",
                )
            changes[change] = (balance, sign * amount, span)
        self.balances, self.spans = [_START], [Span(-1, -1, "the start")]
        for change in range(1, len(changes) + 1):
            if change not in changes:
                violated("lost update", f"change {change} of account {number} is missing")
            balance, difference, span = changes[change]
            if balance != self.balances[-1] + difference or balance < 0:
                violated("wrong answer", f"{span.name} leaves account {number} at {balance}")
            self.balances.append(balance)
            self.spans.append(span)
        check_real_time(self.spans, f"account {number}")
        stored = history.values("account")[str(number)]
        if stored != [len(changes), self.balances[-1]]:
            violated("lost update", f"account {number} is {stored}, not as its transfers say")
        for seen, amount, span in short:
            self.check_read(seen, span)
            if seen[1] >= amount:
                violated("wrong answer", f"{span.name} was refused with {seen[1]} of {amount}")

    def check_read(self, seen: Sequence[int], span: Span) -> None:
        """Fail unless an account in this state could be seen within the span."""
        change, balance = seen
        if change >= len(self.balances) or self.balances[change] != balance:
            violated(
                "not durable",
                f"{span.name} saw account {self.number} as {seen}, which never existed",
            )
        check_real_time(
            [*self.spans[: change + 1], span, *self.spans[change + 1 :]], f"account {self.number}"
        )


def _account(number: int) -> Key:
    return ("account", str(number))


def _transfer(id_: str) -> Key:
    return ("transfer", id_)
