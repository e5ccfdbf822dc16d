"""A game in virtual time, and a provider of texts that notes what it is given."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from apps.rps.game import Game
from apps.rps.provider import Provider, Reply
from onceward.api.jobs import ENDED
from onceward.app import App
from onceward.errors import NotDone
from tests.work.apps import Apps

NUMBERS = {
    "Ann": "+12025550101",
    "Bob": "+12025550102",
    "Cid": "+12025550103",
    "Dan": "+12025550104",
}
NAMES = {number: name for name, number in NUMBERS.items()}


class Carrier(Provider):
    """Delivers replies at once."""

    name: ClassVar[str] = "carrier"
    asks: ClassVar[bool] = True

    def __init__(self) -> None:
        self.sent: list[tuple[str, Reply]] = []

    async def send(self, id_: str, reply: Reply) -> Any:
        self.sent.append((id_, reply))
        return {"number": len(self.sent)}

    async def ask(self, id_: str, reply: Reply, created_ms: int) -> Any:
        if id_ not in [sent for sent, _ in self.sent]:
            raise NotDone("it was not sent")
        return {"settled": True}


class Table:
    """Players who text a game, one after the other, and what they hear."""

    def __init__(self, app: App, game: Game, carrier: Carrier) -> None:
        self.app = app
        self.game = game
        self.carrier = carrier
        self.texts = 0

    async def text(self, name: str, text: str) -> dict[str, list[str]]:
        """Send a text, and return who hears what."""
        self.texts += 1
        return await self.deliver(f"text-{self.texts}", name, text)

    async def deliver(self, id_: str, name: str, text: str) -> dict[str, list[str]]:
        before = len(self.carrier.sent)
        receipt = await self.game.accept("carrier", id_, NUMBERS.get(name, name), text)
        job = await self.app.wait(receipt.id, 600)
        assert job.state == "succeeded", job.reason
        await self.settle()
        heard: dict[str, list[str]] = {}
        for _, reply in self.carrier.sent[before:]:
            heard.setdefault(NAMES.get(reply.to, reply.to), []).append(reply.text)
        return heard

    async def settle(self) -> None:
        """Wait until nothing is to be done any more."""
        while await self.app.store.run(self._busy):
            await self.game.app.store.clock.sleep(0.05)

    async def _busy(self, tx: Any) -> bool:
        rows = [row for slot in range(4) for row in await tx.scan(f"job#{slot:04d}")]
        stages = [row.value["stage"] for row in rows if row.key[1].endswith("#job")]
        return any(stage not in ENDED for stage in stages)

    async def play(self, *lines: str) -> dict[str, list[str]]:
        """Texts such as `Ann: throw rock Bob`; returns what comes of the last."""
        heard: dict[str, list[str]] = {}
        for line in lines:
            name, _, text = line.partition(": ")
            heard = await self.text(name, text)
        return heard


@asynccontextmanager
async def table(*names: str, apps: Apps | None = None) -> AsyncIterator[Table]:
    """A game at which some have their names as nicknames already."""
    app, carrier = (apps or Apps(shared=False)).make(), Carrier()
    game = Game(app, [carrier])
    async with app:
        table = Table(app, game, carrier)
        for name in names:
            await table.text(name, f"nick {name}")
        yield table
