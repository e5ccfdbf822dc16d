"""Concurrent counters: every increment counts once and triggers its hooks."""

import random
from typing import Any

from onceward.engine.base import Put
from onceward.json_values import decode
from onceward.keys import Key
from onceward.store.store import Commit
from onceward.store.transaction import Transaction
from onceward.testing.simulation.core.reading import find
from onceward.testing.simulation.history import (
    NEVER_NS,
    History,
    Span,
    check_real_time,
    check_unique,
    violated,
)
from onceward.testing.simulation.network import Message
from onceward.testing.simulation.scenario import Scenario
from onceward.testing.simulation.world import Node


class Counters(Scenario):
    """A counter is the list of the executions that increased it, in a cached head record.

    An execution is not protected by a record of its id: if the store applied one twice, the list
    would show it. A message that is executed twice correctly counts twice.
    """

    def setup(self, random: random.Random) -> None:
        self.count = random.randint(1, 2)
        self.in_line = random.random() < 0.8

    async def start(self, node: Node) -> None:
        def hook(commit: Commit) -> None:
            for write in commit.writes:
                if write.key[0] == "counter" and isinstance(write, Put):
                    tokens = decode(write.value, list[str], write.key)
                    node.tell("counter hook", [write.key[1], tokens[-1]])

        node.store.on_durable(hook)

    def request(self, random: random.Random) -> Any:
        what = random.choices(("count", "peek", "scan", "follow"), (6, 2, 2, 1))[0]
        return (what, random.randrange(self.count))

    async def handle(self, node: Node, message: Message) -> Any:
        what, number = message.request
        key = _counter(number)
        if what == "count":
            token = node.token(message)
            line = f"counter {number}" if self.in_line else None
            position = await node.run(lambda tx: self._count(node, tx, key, token), line)
            return [token, position]
        if what == "scan":
            return await node.run(lambda tx: find(tx, key))
        if what == "follow":
            with node.engine.watch("counter") as watch:
                watch.clear()
                await node.run(lambda tx: tx.get(key))
                await watch.wait(0.5)
        return await node.run(lambda tx: tx.get(key, cached=True))

    async def _count(self, node: Node, tx: Transaction, key: Key, token: str) -> int:
        tokens = await tx.get(key, list[str], cached=True) or []
        tokens.append(token)
        tx.put(key, tokens)
        tx.on_durable(lambda: node.tell("counter transaction hook", [key[1], token]))
        return len(tokens)

    def judge(self, history: History) -> None:
        for number in range(self.count):
            stored = history.values("counter").get(str(number), [])
            self._judge_counter(history, number, stored)

    def _judge_counter(self, history: History, number: int, stored: list[str]) -> None:
        name = f"counter {number}"
        check_unique(stored, "applied twice", name)
        calls = {call.id: call for call in history.calls if call.request[1] == number}
        returned: dict[str, int] = {}
        for call in calls.values():
            if call.request[0] == "count":
                for answer in call.answers:
                    token, position = answer.body
                    returned[token] = min(answer.returned_ns, returned.get(token, NEVER_NS))
                    if len(stored) < position or stored[position - 1] != token:
                        kind = "lost update" if token in stored else "lost"
                        violated(
                            kind, f"{name}: {token} got {position}, but the record is {stored}"
                        )
        spans = [
            Span(calls[token.split("@")[0]].called_ns, returned.get(token, NEVER_NS), token)
            for token in stored
        ]
        check_real_time(spans, name)
        for call in calls.values():
            if call.request[0] != "count":
                for answer in call.answers:
                    seen = answer.body or []
                    if stored[: len(seen)] != seen:
                        violated(
                            "not durable", f"{call.id} saw {seen} in {name}, which never existed"
                        )
                    span = Span(call.called_ns, answer.returned_ns, call.id)
                    check_real_time([*spans[: len(seen)], span, *spans[len(seen) :]], name)
        for topic in ("counter hook", "counter transaction hook"):
            self._judge_hook(history, topic, number, stored, list(returned))

    def _judge_hook(
        self, history: History, topic: str, number: int, stored: list[str], answered: list[str]
    ) -> None:
        told: dict[str, list[str]] = {}
        for note in history.notes:
            if note.topic == topic and note.body[0] == str(number):
                told.setdefault(note.node, []).append(note.body[1])
        check_unique([token for tokens in told.values() for token in tokens], "hook", topic)
        for node, tokens in told.items():
            for token in tokens:
                if token not in stored:
                    violated("hook", f"{topic} of {node} got {token}, which is not stored")
            places = [stored.index(token) for token in tokens]
            if history.mode == "local" and places != sorted(places):
                violated("hook", f"{topic} of {node} was called out of order: {places}")
        for token in answered:
            node = token.split("@")[1].split(":")[0]
            if token not in told.get(node, []):
                violated("hook", f"{topic} of {node} did not get {token}")


def _counter(number: int) -> Key:
    return ("counter", str(number))
