"""Stored data is verified after the start and once a day."""

import asyncio
from typing import Any

import pytest

from onceward import limits
from onceward.engine.memory import MemoryEngine
from onceward.errors import CannotOpen, Unavailable
from onceward.maintenance.verifier import Verifier
from onceward.node import Node
from onceward.store import Store
from onceward.testing import VirtualClock
from tests.schedule.cluster import virtual


class Rotting(MemoryEngine):
    """An engine whose data is found damaged by one of the verifications."""

    outcomes: list[Any]
    done = False

    @property
    def verified(self) -> bool:
        return self.done

    async def verify(self) -> None:
        outcome = self.outcomes.pop(0)
        if outcome is not None:
            raise outcome
        self.done = True


@virtual
async def test_damage_found_by_a_later_verification_ends_the_node() -> None:
    loop = asyncio.get_running_loop()
    engine = Rotting()
    trouble, damage = Unavailable("busy"), CannotOpen("a page is damaged", code="damaged")
    engine.outcomes = [trouble, None, None, damage]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(limits, "VERIFY_S", 100)
        await engine.open()
        node = await Node(Store(engine, VirtualClock()), slots=4).start()
        begun_s = loop.time()
        with pytest.raises(CannotOpen, match="a page is damaged"):
            await node.wait()
        assert loop.time() - begun_s >= 2 * limits.VERIFY_S
        assert engine.outcomes == []


def test_an_engine_that_has_nothing_to_verify_is_left_alone() -> None:
    assert not Verifier(Store(MemoryEngine())).needed
    assert Verifier(Store(Rotting())).needed
