"""Registers with reads, writes, swaps, creates and deletes, checked for linearizability."""

import random
from typing import Any

from onceward.keys import Key
from onceward.store.transaction import Transaction
from onceward.testing.simulation.core.reading import find
from onceward.testing.simulation.history import NEVER_NS, Call, History, violated
from onceward.testing.simulation.linear import ANYTHING, SAME, Operation, linearizable
from onceward.testing.simulation.network import Message
from onceward.testing.simulation.scenario import Scenario
from onceward.testing.simulation.world import Node


class Refused(Exception):
    """Raised by a function that reads and then decides not to write; has the value it saw."""

    def __init__(self, seen: Any) -> None:
        self.seen = seen


class Registers(Scenario):
    """Every execution writes a unique value, so a value identifies its writer.

    Only `erase` leaves no such mark. It keeps a record of its id, and happens once.
    """

    def setup(self, random: random.Random) -> None:
        self.count = random.randint(1, 2)

    def request(self, random: random.Random) -> Any:
        what = random.choices(
            ("read", "find", "refuse", "write", "swap", "create", "erase"), (3, 2, 2, 2, 3, 2, 3)
        )[0]
        return (what, random.randrange(self.count), random.random() < 0.3)

    async def handle(self, node: Node, message: Message) -> Any:
        what, number, cached = message.request
        key, token = ("register", str(number)), node.token(message)
        functions = {
            "read": lambda tx: tx.get(key, cached=cached),
            "find": lambda tx: find(tx, key),
            "refuse": lambda tx: _refuse(tx, key, token, cached),
            "write": lambda tx: _write(tx, key, token),
            "swap": lambda tx: _swap(tx, key, token, cached),
            "create": lambda tx: _create(tx, key, token, cached),
            "erase": lambda tx: _erase(tx, key, ("erased", message.id)),
        }
        try:
            return [token, await node.run(functions[what]), "done"]
        except Refused as refused:
            return [token, refused.seen, "refused"]

    def judge(self, history: History) -> None:
        for number in range(self.count):
            calls = [call for call in history.calls if call.request[1] == number]
            final = history.values("register").get(str(number))
            operations = _operations(calls, final)
            if not linearizable(operations):
                story = "\n  ".join(str(operation) for operation in operations)
                violated("not linearizable", f"register {number}:\n  {story}")


async def _refuse(tx: Transaction, key: Key, token: str, cached: bool) -> None:
    seen = await tx.get(key, cached=cached)
    tx.put(key, token)  # must never be visible, since the function fails
    raise Refused(seen)


async def _write(tx: Transaction, key: Key, token: str) -> None:
    tx.put(key, token)


async def _swap(tx: Transaction, key: Key, token: str, cached: bool) -> Any:
    seen = await tx.get(key, cached=cached)
    tx.put(key, token)
    if await tx.get(key) != token:
        violated("own write", f"{token} does not see what it has put")
    return seen


async def _create(tx: Transaction, key: Key, token: str, cached: bool) -> None:
    seen = await tx.get(key, cached=cached)
    if seen is not None:
        raise Refused(seen)
    tx.put(key, token)


async def _erase(tx: Transaction, key: Key, done_key: Key) -> Any:
    done = await tx.get(done_key)
    if done is not None:
        return done[0]
    seen = await tx.get(key)
    tx.delete(key)
    if await tx.get(key) is not None:
        violated("own write", f"{done_key} still sees what it has deleted")
    tx.put(done_key, [seen])
    return seen


def _operations(calls: list[Call], final: Any) -> list[Operation]:
    """The operations on a register that clients know of; its final value is read at the end."""
    operations: list[Operation] = []
    known: dict[str, None] = {}
    seen_values: dict[str, None] = {}
    for call in calls:
        what = call.request[0]
        if what == "erase":
            if any(answer.body[1] != call.answer[1] for answer in call.answers):
                violated("applied twice", f"{call.id} erased more than once: {call.answers}")
            operations.append(
                Operation(call.called_ns, call.returned_ns, call.answer[1], None, call.id)
            )
            continue
        for answer in call.answers:
            token, seen, how = answer.body
            # A repeated response of the network contains no new information.
            if token in known:
                continue
            known[token] = None
            if seen is not None:
                seen_values[seen] = None
            if how == "refused" or what in ("read", "find"):
                sees, leaves = seen, SAME
            else:
                sees = ANYTHING if what == "write" else None if what == "create" else seen
                leaves = token
            operations.append(Operation(call.called_ns, answer.returned_ns, sees, leaves, token))
    for call in calls:
        if call.request[0] == "erase" and call.answer[1] is not None:
            seen_values[call.answer[1]] = None
    if final is not None:
        seen_values[final] = None
    called = {call.id: call for call in calls}
    for value in seen_values:
        if value not in known:
            # A writing execution without a response.
            call = called[value.split("@")[0]]
            if call.request[0] not in ("write", "swap", "create"):
                continue
            sees = None if call.request[0] == "create" else ANYTHING
            operations.append(Operation(call.called_ns, NEVER_NS, sees, value, value))
    operations.append(Operation(NEVER_NS - 2, NEVER_NS - 1, final, SAME, "the end"))
    return operations
