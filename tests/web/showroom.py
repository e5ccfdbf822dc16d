"""A shop with something of everything in it, for those who look at the console: jobs that went
well, that wait, died and are in doubt; timers, endpoints, rooms and locks."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import onceward
from onceward.client import Client
from onceward.tables.games import Rules, won
from tests.server_process import ServerProcess

SCRIPT = "<script>document.title = 'taken over'</script>"
HOUR_MS = 3_600_000
HOURLY = {"pauses_ms": [HOUR_MS]}
MARKUP = "<b onmouseover=alert(1)>board</b>"


class Nim(Rules):
    """Take one, two or three matches; who takes the last one wins."""

    name, seats = "nim", ("first", "second")

    def start(self, seed: str) -> Any:
        return {"left": 12, "taker": None}

    def moves(self, state: Any, seat: str) -> Any:
        return range(1, min(state["left"], 3) + 1)

    def apply(self, state: Any, seat: str, move: Any) -> Any:
        return {"left": state["left"] - move, "taker": seat}

    def outcome(self, state: Any) -> Any:
        return won(state["taker"]) if state["left"] == 0 else None


app = onceward.App("sqlite:///shop.db", name="shop")
app.game(Nim())


@app.handler("orders", attempts_max=3, retry_first_s=0.05, retry_max_s=0.1)
async def order(job: onceward.Job) -> dict[str, Any]:
    """Take money once, and let all else happen in one commit."""
    item = job.body["item"]
    shelf = await job.step("reserve", lambda: {"shelf": "B4", "item": item})
    if item == "sofa":
        raise onceward.Fail("all sofas are sold")
    if item == "vase" and job.attempt == 1:
        raise RuntimeError("the warehouse did not answer within 5 s")
    paid = await job.step("charge card", _charge, job.body, at_most_once=True)
    mail = {"to": job.body["customer"], "subject": f"Your {item} is on its way"}
    await job.send("mail", mail)
    if item == "lamp":
        await app.timers.set(
            f"ask {job.body['order']}", queue="mail", body=mail, delay_s=86_400, tx=job.tx
        )
        await app.rooms.map_add(job.tx, "warehouse", "stock", item, -1, by="shop")
        await app.rooms.list_push(job.tx, "warehouse", "sold", job.body["order"], by="shop")
    return {"shelf": shelf["shelf"], "paid": paid["amount"]}


def _charge(body: dict[str, Any]) -> dict[str, Any]:
    if body["item"] == "piano":
        raise TimeoutError("the bank has not answered")
    return {"amount": body.get("amount", 49), "receipt": "R-2207"}


@app.handler("mail", attempts_max=2, retry_first_s=0.05, retry_max_s=0.05)
async def mail(job: onceward.Job) -> str:
    if "@" not in str(job.body.get("to", "")):
        raise onceward.Fail("550 no such mailbox")
    return "250 queued"


@app.handler("returns")
async def take_back(job: onceward.Job) -> dict[str, Any]:
    """Inspect all items, and wait for an approval."""
    items = [onceward.ChildJob("inspections", item) for item in job.body["items"]]
    found = await job.gather(*items)
    return {"found": found, "approval": await job.wait_for("approval")}


@app.handler("photos", concurrency=16, attempts_max=1)
async def photo(job: onceward.Job) -> str:
    """Resize a picture of the catalogue."""
    number = job.body["page"]
    await job.step("read", app.store.clock.sleep, job.body["takes_s"] / 2)
    await job.step("resize", app.store.clock.sleep, job.body["takes_s"] / 2)
    if number % 40 == 7:
        raise onceward.Fail(f"page-{number}.jpg is not a picture")
    return f"page-{number}.webp"


@app.handler("catalogues", attempts_max=3, retry_first_s=0.2, retry_max_s=0.2)
async def catalogue(job: onceward.Job) -> dict[str, Any]:
    """Many children, some of which fail, and an approval."""
    takes_s = job.body["takes_s"]
    await job.step("read the layout", app.store.clock.sleep, takes_s)
    if job.attempt == 1:
        raise RuntimeError("the printer did not answer within 5 s")
    pages = [
        onceward.ChildJob("photos", {"page": page, "takes_s": takes_s * (1 + page % 5) / 4})
        for page in range(job.body["pages"])
    ]
    found = await job.gather(*pages, return_exceptions=True)
    await job.step("assemble", app.store.clock.sleep, takes_s)
    approval = await job.wait_for("approval", timeout_s=86_400)
    await job.step("publish", app.store.clock.sleep, takes_s / 2)
    failed = [one for one in found if isinstance(one, Exception)]
    return {"pages": len(found) - len(failed), "failed": len(failed), "approval": approval}


class Shop:
    """The shop behind a server that runs, and traffic for it."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self._numbers = itertools.count(1042)

    async def fill(self, client: Client) -> None:
        """Let there be something of everything."""
        await client.call(
            "POST",
            "v1",
            "rooms",
            type=dict,
            body={"id": "warehouse", "meta": {"team": "logistics"}},
        )
        await self.step(client, "warehouse", "map.set", map="stock", key="lamp", value=5_000)
        await self.step(client, "warehouse", "map.set", map="notes", key="today", value=SCRIPT)
        await client.call("POST", "v1", "rooms", type=dict, body={"id": MARKUP})
        for number, text in enumerate(("Plan the sale", "Count the vases", MARKUP)):
            await self.step(client, MARKUP, "map.set", map="tasks", key=str(number), value=text)
        await self.sell(client, "lamp", 3)
        await self.sell(client, "vase", 2)
        await self.sell(client, "sofa", 4)
        await self.sell(client, "piano", 1)
        await client.send("mail", {"to": "nobody", "text": SCRIPT}, key=SCRIPT)
        await client.send("parcels", {"order": "order-1042"}, key="parcel-7")
        await client.send(
            "parcels",
            {"order": "order-1043"},
            key="parcel-8",
            delay_s=3_600,
            tags=["fragile", MARKUP],
        )
        for _ in range(5):  # an impatient sender
            await client.send("parcels", {"order": "order-1042"}, key="parcel-7")
        closed = "http://127.0.0.1:9/hook"
        await client.call(
            "POST", "v1", "endpoints", type=dict, body={"id": "carrier", "url": closed}
        )
        for id_, timer in (
            ("carrier-pickup", {"endpoint": "carrier", "delay_ms": 0, "attempts_max": 1}),
            ("label", {"endpoint": "carrier", "delay_ms": 0, "retry": HOURLY}),
            ("newsletter", {"queue": "mail", "cron": "0 9 * * MON", "zone": "Europe/Berlin"}),
            ("stock-count", {"queue": "parcels", "every_ms": 900_000}),
            ("close-shop", {"queue": "parcels", "delay_ms": HOUR_MS // 2}),
            (MARKUP, {"queue": "parcels", "delay_ms": HOUR_MS}),
        ):
            await client.call("POST", "v1", "timers", type=dict, body={"id": id_, **timer})
        # Nothing of it ends by itself, however slow whoever looks at it is.
        times = dict.fromkeys(("turn_ms", "idle_ms", "waiting_ms"), HOUR_MS)
        table = {"id": "canteen", "game": "nim", "policy": times}
        await client.call("POST", "v1", "tables", type=dict, body=table)
        for user in ("ann", "ben", "cas"):
            await self.at_table(client, "join", user=user)
        moves = [("ann", 3), ("ben", 1), ("ann", 2), ("ben", 2), ("ann", 3), ("ben", 1)]
        for user, taken in moves:
            await self.at_table(client, "move", user=user, move=taken)
        # The first has it, and the second keeps its place in line for the length of its lease.
        await self._ask(client, "printer-worker-1")
        asking = asyncio.create_task(self._ask(client, "printer-worker-2"))
        while not await self._waiting(client, "label-printer"):
            await client.clock.sleep(0.02)
        asking.cancel()
        await asyncio.wait([asking])
        body = {"names": ["dock"], "owner": "truck-7", "capacity": 3, "lease_ms": 3_600_000}
        await client.call("POST", "v1", "locks", "acquire", type=dict, body=body)

    async def sell(self, client: Client, item: str, count: int, times: int = 1) -> None:
        """Let so many customers order, each of them so many times."""
        for _ in range(count):
            number = next(self._numbers)
            order = f"order-{number}"
            body = {"order": order, "item": item, "customer": f"customer{number}@example.com"}
            for _ in range(times):
                await client.send("orders", body, key=order)

    async def at_table(self, client: Client, deed: str, **body: Any) -> None:
        await client.call("POST", "v1", "tables", "canteen", deed, type=dict, body=body)

    async def step(self, client: Client, room: str, op: str, **members: Any) -> None:
        body = {"ops": [{"op": op, **members}]}
        await client.call("POST", "v1", "rooms", room, "ops", type=dict, body=body)

    async def _ask(self, client: Client, owner: str) -> None:
        await client.locks.acquire(["label-printer"], owner=owner, lease_s=3_600, wait_s=60)

    async def _waiting(self, client: Client, name: str) -> int:
        """How many wait for a lock."""
        lock = await client.call("GET", "v1", "locks", name, type=dict)
        waiting: int = lock["waiting"]
        return waiting


def open_shop(folder: Path, *options: str) -> ServerProcess:
    """A server with the shop in it, to be entered."""
    return ServerProcess(folder, "--app", "tests.web.showroom:app", *options)
