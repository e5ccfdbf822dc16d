"""Takes screenshots of the console for the README and the guide.

It starts a server with a small shop, generates traffic, and opens the console in a browser.

    python scripts/console_pictures.py docs [OTHER-FOLDER-FOR-ALL-PAGES]
"""

import asyncio
import os
import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from onceward.client import Client
from tests.browser import launched, visiting
from tests.server_process import ServerProcess
from tests.web.showroom import Shop, open_shop

DESKTOP, PHONE = {"width": 1280, "height": 1000}, {"width": 390, "height": 844}
SHOWN = {
    "console.png": ("", DESKTOP, "light"),
    "console-dark.png": ("", DESKTOP, "dark"),
    "console-job.png": ("job", {**DESKTOP, "height": 880}, "light"),
    "console-timeline.png": ("catalogue", {**DESKTOP, "height": 1060}, "light"),
    "console-phone.png": ("", PHONE, "dark"),
}
ALL = [
    *("queues", "queues/orders", "queues/orders?tab=failed", "queues/parcels?tab=senders"),
    *(
        "queues/orders?tab=settings",
        "doubt",
        "job",
        "catalogue",
        "timers",
        "timers?tab=all",
        "timers?tab=new",
    ),
    *("endpoints", "timers/carrier-pickup", "rooms", "rooms/warehouse", "locks/label-printer"),
    *("tables", "tables/canteen"),
    *("settings", ""),
]
# Long enough to fill the plots.
TRAFFIC_S = float(os.environ.get("TRAFFIC_S", "120"))


@contextmanager
def traffic(server: ServerProcess) -> Iterator[threading.Event]:
    """Traffic: customers who order, some of them twice, and users in the warehouse."""
    over, enough = threading.Event(), threading.Event()

    async def send() -> None:
        chance = random.Random(7)
        async with Client(server.url) as client, client.live(token="dev:ann") as live:
            shop = Shop(server)
            await shop.fill(client)
            await client.send("catalogues", {"pages": 100, "takes_s": 0.8}, key="catalogue-7")
            await live.join("warehouse")
            async with client.live(token="dev:bob") as other:
                await other.join("warehouse")
                for tick in range(1_000_000):
                    if over.is_set():
                        return
                    if tick >= TRAFFIC_S * 10:
                        enough.set()
                    busy = 1.5 + tick % 400 / 400
                    for _ in range(int(chance.expovariate(1 / busy))):
                        item = chance.choices(
                            ["lamp", "rug", "desk", "vase", "sofa"], [9, 6, 4, 2, 0.05]
                        )
                        await shop.sell(client, item[0], 1, times=chance.choice([1, 1, 1, 2, 4]))
                    await asyncio.sleep(0.1)

    thread = threading.Thread(target=lambda: asyncio.run(send()))
    thread.start()
    try:
        yield enough
    finally:
        over.set()
        thread.join()


def main() -> None:
    target, *others = map(Path, sys.argv[1:])
    with TemporaryDirectory() as folder, open_shop(Path(folder)) as server:
        link = server.console_link()
        with traffic(server) as enough:
            enough.wait()
            with launched() as browser:
                with visiting(browser) as page:
                    page.goto(link)
                    page.get_by_role("heading", level=1, name="Overview").wait_for()
                    state = page.context.storage_state()
                for name, (path, size, scheme) in SHOWN.items():
                    take(browser, state, server, path, size, scheme, target / name)
                for other in others:
                    other.mkdir(exist_ok=True)
                    for number, path in enumerate(ALL):
                        for size, scheme in ((DESKTOP, "light"), (PHONE, "dark")):
                            plain = path.replace("/", "-").replace("?", "-")
                            name = f"{number:02d}-{plain}-{size['width']}.png"
                            take(browser, state, server, path, size, scheme, other / name)


def take(
    browser: Any, state: Any, server: ServerProcess, path: str, size: Any, scheme: str, to: Path
) -> None:
    with visiting(browser, storage_state=state, viewport=size, color_scheme=scheme) as page:
        page.goto(f"{server.url}/#/{'queues' if path in ('job', 'catalogue', 'doubt') else path}")
        if path in ("job", "catalogue"):
            key = "order-1042" if path == "job" else "catalogue-7"
            page.get_by_label("Find a job").fill(key)
            page.get_by_role("button", name="Search", exact=True).click()
            page.get_by_text(f"Key {key}").wait_for()
            page.get_by_role("link", name=key).first.click()
            page.locator(".story .effects" if path == "job" else ".timeline").wait_for()
        elif path == "doubt":
            page.goto(f"{server.url}/#/queues/orders?tab=failed")
            page.get_by_role("link", name="Settle").first.click()
            page.get_by_role("heading", name="Was “").wait_for()
        page.get_by_role("heading", level=1).wait_for()
        page.wait_for_timeout(3_000)
        page.screenshot(path=str(to))


if __name__ == "__main__":
    main()
