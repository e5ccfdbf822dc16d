"""The examples in the guide to rooms work as they stand."""

import re
from pathlib import Path
from typing import Any

import onceward
from onceward.app import App
from onceward.transaction import Transaction
from tests.client.served import Served

GUIDE = Path("docs/rooms.md")


def snippets() -> list[str]:
    return re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)


async def test_the_example_of_the_guide_shows_what_it_says() -> None:
    example, _ = snippets()
    shown: list[tuple[Any, ...]] = []
    async with Served() as served:
        example = example.replace("http://localhost:8080", served.url)
        names: dict[str, Any] = {"print": lambda *args: shown.append(args)}
        exec(example.removesuffix("asyncio.run(main())\n"), names)
        await names["main"]()
    assert shown == [
        (["milk"],),
        ("step", 2),
        ([], ["milk"]),
        ([], ["bread", "milk"]),
    ]


async def test_the_handler_of_the_guide_changes_the_room_in_its_commit() -> None:
    app = App("memory://")
    _, handler = snippets()
    exec(handler, {"app": app, "onceward": onceward})

    async def stock(tx: Transaction) -> None:
        await app.rooms.create(tx, "shop")
        await app.rooms.map_set(tx, "shop", "stock", "lamp", 1)

    async with app:
        await app.run(stock)
        sent = [await app.accept("orders", {"item": "lamp"}, key=key) for key in "ab"]
        ended = [await app.wait(receipt.id, 50) for receipt in sent]
        assert sorted(job.state for job in ended) == ["dead", "done"]
        assert await app.run(lambda tx: app.rooms.map(tx, "shop", "stock")) == {"lamp": 0}
        sold = await app.run(lambda tx: app.rooms.list(tx, "shop", "sold"))
        assert [item.value for item in sold or ()] == [{"item": "lamp"}]
