import pytest

from onceward.engine.memory import MemoryEngine
from onceward.store import Store
from onceward.testing.simulation.core.reading import WAYS, find, read

KEYS = [("p", "b"), ("p", "no"), ("p", "a")]


@pytest.mark.parametrize("way", WAYS)
async def test_all_ways_read_the_same(way):
    store = Store(await MemoryEngine().open())

    async def fill(tx):
        tx.put(("p", "a"), 1)
        tx.put(("p", "b"), 2)

    await store.run(fill)
    assert await store.run(lambda tx: read(tx, KEYS, way)) == [2, None, 1]
    assert await store.run(lambda tx: find(tx, ("p", "a"))) == 1
    assert await store.run(lambda tx: find(tx, ("p", "aa"))) is None
    assert await store.run(lambda tx: find(tx, ("p", "c"))) is None
