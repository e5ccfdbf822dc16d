"""The scenario for the core: transactions on records, checked by five independent models."""

import asyncio

from onceward import limits
from onceward.errors import Unavailable
from onceward.testing.simulation.core.accounts import Accounts
from onceward.testing.simulation.core.counters import Counters
from onceward.testing.simulation.core.items import Items
from onceward.testing.simulation.core.leases import Leases
from onceward.testing.simulation.core.registers import Registers
from onceward.testing.simulation.scenario import Combined
from onceward.testing.simulation.world import Node

_SWEEP_S = 5.0


class Core(Combined):
    """Transfers, counters, registers, leases and a queue of items in one database."""

    parts = (Accounts, Counters, Registers, Leases, Items)

    async def start(self, node: Node) -> None:
        await super().start(node)
        node.spawn(_sweep(node))


async def _sweep(node: Node) -> None:
    while True:
        await asyncio.sleep(_SWEEP_S)
        try:
            await node.engine.sweep(node.clock.now_ms() - limits.SWEEP_SLACK_MS)
        except Unavailable:
            pass
