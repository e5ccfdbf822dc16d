"""A kind of due entries that notes what was done with it."""

from onceward.keys import Key, join
from onceward.schedule import due_partition
from onceward.store.transaction import Transaction
from tests.schedule.cluster import Member


class Log:
    """A kind of due entries that notes when each was acted on, and removes it."""

    def __init__(self, member: Member, kind: str = "log") -> None:
        self.member = member
        self.kind = kind
        self.acted: list[tuple[str, int]] = []
        self.poisoned: set[str] = set()
        self.tried: list[tuple[str, int]] = []
        member.node.dispatcher.on_due(kind, self.act, writes=1)

    async def act(self, tx: Transaction, entry: Key) -> None:
        name = entry[1].split("#")[1]
        self.tried.append((name, self.member.clock.now_ms()))
        if name in self.poisoned:
            raise ValueError(f"{name} is poisoned")
        tx.delete(entry)
        tx.on_durable(lambda: self.acted.append((name, self.member.clock.now_ms())))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.acted]


async def put(member: Member, *names: str, at_ms: int, slot: int = 0, kind: str = "log") -> None:
    async def fn(tx: Transaction) -> None:
        for name in names:
            tx.put((due_partition(slot), join(at_ms, name, kind)), 1)

    await member.run(fn)


async def remove(member: Member, *names: str, at_ms: int, slot: int = 0, kind: str = "log") -> None:
    async def fn(tx: Transaction) -> None:
        for name in names:
            tx.delete((due_partition(slot), join(at_ms, name, kind)))

    await member.run(fn)
