import inspect
from pathlib import Path
from typing import Any

import pytest

import onceward
from onceward import cli, limits
from onceward.engine.memory import MemoryEngine
from onceward.errors import BadInput, TooLarge
from onceward.keys import kind_of
from onceward.rooms.part import Rooms
from onceward.store.transaction import Row, Transaction
from onceward.store.user_records import PARTITION_BYTES_MAX, UserTransaction, admit_tx
from onceward.tables import Seats
from onceward.tables.games.server import Games
from onceward.work.inbox import Inbox

# What used to break something: the check, the next start, a queue.
NAMES = ["order", "node", "queue", "job#0000", "slot", "config", "due#0000", "u", "u#order"]


@pytest.mark.parametrize("name", NAMES)
async def test_any_name_is_free_for_records_of_an_application(tmp_path: Path, name: str) -> None:
    url = f"sqlite:///{tmp_path / 'app.db'}"
    for run in range(2):
        app = onceward.App(url, slots=2)

        @app.handler("queue")
        async def handle(job: onceward.Job) -> int:
            count = (await job.tx.get((name, "queue")) or 0) + 1
            job.tx.put((name, "queue"), count)
            return int(count)

        async with app:
            receipt = await app.send("queue", None, key=f"{run}")
            assert (await app.wait(receipt.id)).result == run + 1
    assert cli.main(["db", "check", str(tmp_path / "app.db"), "--quiet"]) == 0


async def test_a_transaction_reads_what_it_and_others_have_written() -> None:
    async with onceward.App("memory://") as app:

        async def write(tx: UserTransaction) -> list[Any]:
            tx.put(("shop", "a"), 1)
            tx.add(("shop", "b"), 2)
            mark = tx.mark()
            tx.put(("shop", "c"), 3)
            tx.undo(mark)
            return [await tx.get(("shop", "a")), await tx.get_many([("shop", "b"), ("shop", "c")])]

        assert await app.run(write) == [1, [2, None]]

        async def look(tx: UserTransaction) -> list[Row[Any]]:
            await tx.fetch([("shop", "a")])
            return await tx.scan("shop", start="a", end="c", reverse=True, limit=10)

        assert await app.run(look) == [(("shop", "b"), 2), (("shop", "a"), 1)]

        async def remove(tx: UserTransaction) -> None:
            tx.delete(("shop", "a"))

        await app.run(remove)
        assert await app.run(lambda tx: tx.get(("shop", "a"))) is None


async def test_records_of_an_application_have_a_prefix_of_their_own() -> None:
    engine = MemoryEngine()
    async with onceward.App(engine) as app:

        async def write(tx: UserTransaction) -> None:
            tx.put(("order", "7"), 1)

        await app.run(write)
        assert [r.key for r in await engine.scan("u#order", 0)] == [("u#order", "7")]
        assert await engine.scan("order", 0) == []
        assert kind_of("u#order") == "u"


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (("", "7"), f"a partition must have 1 to {PARTITION_BYTES_MAX} bytes, not 0"),
        (("x" * (PARTITION_BYTES_MAX + 1), "7"), f"not {PARTITION_BYTES_MAX + 1}"),
        (("ä" * (PARTITION_BYTES_MAX // 2 + 1), "7"), f"not {PARTITION_BYTES_MAX + 2}"),
        ("order", "a key must be a partition and a sort key"),
    ],
)
async def test_a_key_that_cannot_be_one_is_refused(key: Any, said: str) -> None:
    async with onceward.App("memory://") as app:

        async def write(tx: UserTransaction) -> None:
            tx.put(key, 1)

        with pytest.raises(BadInput, match=said) as refused:
            await app.run(write)
        assert refused.value.code == "bad_key"


async def test_the_longest_key_is_stored() -> None:
    key = ("x" * PARTITION_BYTES_MAX, "y" * limits.SORT_BYTES_MAX)
    async with onceward.App("memory://") as app:

        async def write(tx: UserTransaction) -> None:
            tx.put(key, 1)

        await app.run(write)
        assert await app.run(lambda tx: tx.get(key)) == 1


@pytest.mark.parametrize("value", [object(), "x" * (limits.VALUE_BYTES_MAX + 1)])
async def test_errors_show_the_key_that_the_application_gave(value: Any) -> None:
    async with onceward.App("memory://") as app:

        async def write(tx: UserTransaction) -> None:
            tx.put(("order", "7"), value)

        with pytest.raises((BadInput, TooLarge)) as refused:
            await app.run(write)
        assert "('order', '7')" in refused.value.message
        assert "u#" not in refused.value.message


@pytest.mark.parametrize("part", [Rooms, Seats, Games, Inbox])
def test_public_methods_take_the_transaction_of_an_application(part: type) -> None:
    """All but those that only the dispatcher and the owner of a room call."""
    internal = {"purge", "tick", "expire_", "fetch", "read_to_expire", "append_few"}
    internal |= {"expire"} if part is Seats else set()
    internal |= {"accept"} if part is Inbox else set()  # applications call `App.send`
    for name, method in inspect.getmembers(part, inspect.isfunction):
        given = list(inspect.signature(method).parameters)
        if given[1:2] == ["tx"] and not name.startswith("_") and name not in internal:
            assert "joins.<locals>" in method.__code__.co_qualname, name


def test_what_is_no_transaction_is_refused() -> None:
    with pytest.raises(BadInput, match="not NoneType"):
        admit_tx(None)
    assert onceward.Transaction is UserTransaction
    assert not issubclass(UserTransaction, Transaction)
