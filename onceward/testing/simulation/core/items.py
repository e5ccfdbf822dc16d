"""A queue of items under a head record: appended at the end, removed by scans."""

import random
from typing import Any

from onceward import keys
from onceward.store.transaction import Transaction
from onceward.testing.simulation.history import (
    NEVER_NS,
    Call,
    History,
    Span,
    check_real_time,
    violated,
)
from onceward.testing.simulation.network import Message
from onceward.testing.simulation.scenario import Scenario
from onceward.testing.simulation.world import Node

_HEAD = ("line head", "0")


class Items(Scenario):
    """The head counts added and taken items; the n-th taken item must be the n-th added one."""

    def request(self, random: random.Random) -> Any:
        what = random.choices(("add", "take", "survey", "glance"), (4, 3, 2, 2))[0]
        return (what, random.random() < 0.5)

    async def handle(self, node: Node, message: Message) -> Any:
        what, cached = message.request
        if what == "glance":
            return await node.run(self._glance)
        token = node.token(message)
        function = {"add": self._add, "take": self._take, "survey": self._survey}[what]
        line = "line" if cached else None
        return await node.run(lambda tx: function(tx, token, cached), line)

    async def _add(self, tx: Transaction, token: str, cached: bool) -> Any:
        added, taken = await tx.get(_HEAD, cached=cached) or (0, 0)
        added += 1
        tx.put(("line", keys.number(added)), token)
        tx.put(_HEAD, [added, taken])
        rows = await tx.scan("line", reverse=True, limit=1)
        return {"added": added, "taken": taken, "token": token, "last": [row.value for row in rows]}

    async def _take(self, tx: Transaction, token: str, cached: bool) -> Any:
        added, taken = await tx.get(_HEAD, cached=cached) or (0, 0)
        rows = await tx.scan("line", limit=1)
        if not rows:
            return {"added": added, "taken": taken, "token": token, "item": None}
        tx.delete(rows[0].key)
        tx.put(_HEAD, [added, taken + 1])
        rest = [row.key for row in await tx.scan("line", limit=2)]
        if rows[0].key in rest:
            violated("own write", f"{token} still finds what it has deleted")
        item = [int(rows[0].key[1]), rows[0].value]
        return {"added": added, "taken": taken + 1, "token": token, "item": item}

    async def _survey(self, tx: Transaction, token: str, cached: bool) -> Any:
        added, taken = await tx.get(_HEAD, cached=cached) or (0, 0)
        rows = await tx.scan("line")
        numbers = [int(row.key[1]) for row in rows]
        return {"added": added, "taken": taken, "token": token, "numbers": numbers}

    async def _glance(self, tx: Transaction) -> Any:
        # Unchecked reads: the combination may never have existed, but each item must have.
        rows = await tx.scan("line", limit=3, reverse=True)
        return [[int(row.key[1]), row.value] for row in rows]

    def judge(self, history: History) -> None:
        added, taken = history.values("line head").get("0", (0, 0))
        left = [int(sort) for sort in history.values("line")]
        if left != list(range(taken + 1, added + 1)):
            violated(
                "torn read", f"the head has {added} added and {taken} taken, but the line is {left}"
            )
        adds: dict[int, Span] = {}
        takes: dict[int, Span] = {}
        # The item of each number, from all responses.
        items = {int(sort): token for sort, token in history.values("line").items()}
        glances = [call for call in history.calls if call.request[0] == "glance"]
        calls = [call for call in history.calls if call.request[0] != "glance"]
        for call, answer in [(c, answer) for c in calls for answer in c.answers]:
            body = answer.body
            self._judge_answer(call, body, added, taken)
            span = Span(call.called_ns, answer.returned_ns, body["token"])
            if call.request[0] == "add":
                _note_effect(adds, body["added"], span, "add")
                _note_item(items, body["added"], body["token"])
            elif body.get("item") is not None:
                _note_effect(takes, body["taken"], span, "take")
                _note_item(items, *body["item"])
        for call in glances:
            for answer in call.answers:
                for number, token in answer.body:
                    _note_item(items, number, token)
                    if number > added:
                        violated("not durable", f"{call.id} saw {token}, number {number}: gone")
        for effects, place in ((adds, "added"), (takes, "taken")):
            check_real_time([effects[number] for number in sorted(effects)], f"the {place}")
            _check_reads(calls, effects, place)

    def _judge_answer(self, call: Call, body: Any, added: int, taken: int) -> None:
        if body["added"] > added or body["taken"] > taken:
            violated("not durable", f"{call.id} got {body}, but the final head is {added}, {taken}")
        if "last" in body and body["last"] != [body["token"]]:
            violated("own write", f"{call.id} added an item and found another: {body}")
        if "numbers" in body and body["numbers"] != list(
            range(body["taken"] + 1, body["added"] + 1)
        ):
            violated("torn read", f"{call.id} surveyed {body}")
        if "item" in body:
            if body["item"] is None:
                if body["added"] != body["taken"]:
                    violated("torn read", f"{call.id} found nothing in {body}")
            elif body["item"][0] != body["taken"]:
                violated("torn read", f"{call.id} took out of turn: {body}")


def _note_effect(effects: dict[int, Span], number: int, span: Span, what: str) -> None:
    known = effects.get(number)
    if known is not None and known.name != span.name:
        violated("lost update", f"{known.name} and {span.name} are both {what} {number}")
    if known is None or span.returned_ns < known.returned_ns:
        effects[number] = span


def _note_item(items: dict[int, str], number: int, token: str) -> None:
    if items.setdefault(number, token) != token:
        violated("not durable", f"number {number} is {token} and also {items[number]}")


def _check_reads(calls: list[Call], effects: dict[int, Span], place: str) -> None:
    """A read of the head after `number` effects must see all earlier and no later effects."""
    for call in calls:
        for answer in call.answers:
            number = answer.body[place]
            before = [span for n, span in effects.items() if n <= number]
            after = [span for n, span in effects.items() if n > number]
            reader = Span(call.called_ns, answer.returned_ns, answer.body["token"])
            first = Span(max((s.called_ns for s in before), default=-1), NEVER_NS, "some")
            if reader.returned_ns < first.called_ns:
                violated("not linearizable", f"{reader.name} saw what had not begun")
            if min((s.returned_ns for s in after), default=NEVER_NS) < reader.called_ns:
                violated("not linearizable", f"{reader.name} did not see what had ended")
