"""The dashboard for Grafana shows what a server measures, and nothing that there is not."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import aiohttp

from onceward.app import App
from onceward.client import Client
from onceward.engine.base import Incarnation
from onceward.store.transaction import Transaction
from onceward.web.rates import Rates
from onceward.webhooks.delivery import Outward
from tests.client.served import Served
from tests.docs.book import ROOT
from tests.sql.table import Reader, Table

DASHBOARD = json.loads((ROOT / "docs" / "grafana-dashboard.json").read_text())
NAME = re.compile(r"\b(?:onceward|process)_[a-z_]+")


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


async def measured(served: Served) -> dict[str, set[str]]:
    """The metrics of a server that has done a little of everything, each with its labels."""
    app = served.app
    app.alarms.raise_("disk", "the disk is slow")
    app.meters.count("quarantined", queue="orders")
    app.store.engine.incarnation_changed(Incarnation("other", 2))
    both = asyncio.Barrier(2)

    async def bump(tx: Transaction) -> None:
        count = await tx.get(("count", "a")) or 0
        if count == 0:
            await both.wait()  # until the other one has read it, too
        tx.put(("count", "a"), count + 1)

    async with Client(served.url) as client:
        for key in ("a", "a", "b"):
            await client.send("orders", 1, key=key)
        [job] = await client.jobs.claim("orders")
        await client.jobs.complete(job.id, job.token)
        hook = {"url": f"{served.url}/v1/inbox/heard", "body": {"key": "k", "body": 1}}
        timer = await client.timers.create(**hook, delay_s=0)
        await asyncio.gather(app.run(bump), app.run(bump))
        async with client.live() as live:
            room = await live.join("room", create=True)
            await room.map("m").set("k", 1)
        while (await client.timers.get(timer.id)).state != "success":  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
    async with aiohttp.ClientSession(served.url) as session:
        async with session.ws_connect("/v1/ws") as way:
            await way.send_str("no frame")
            await way.receive()
        served.server._rates = Rates(1e-3, 1, app.store.clock, app.store.meters)
        statuses = [await _status(session, "/v1/queues") for _ in range(2)]
        assert statuses == [200, 429]
        await served.server.counts.count()
        async with session.get("/metrics") as answer:
            return _read(await answer.text())


async def _status(session: aiohttp.ClientSession, path: str) -> int:
    async with session.get(path) as answer:
        return answer.status


def wanted() -> list[str]:
    return [
        name for panel in panels() for one in panel["targets"] for name in NAME.findall(one["expr"])
    ]


def _read(text: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name = re.split(r"[{ ]", line)[0]
            found.setdefault(name, set()).update(re.findall(r'[{,](\w+)="', line))
    return found


async def test_every_metric_and_label_of_the_dashboard_is_one_that_a_server_shows(
    tmp_path: Path,
) -> None:
    app = App(f"sqlite:///{tmp_path}/app.db", slots=4, outward=Outward(allow=["127.0.0.1:*"]))
    table = Table()
    table.add("mail", 1)
    app.sql_outbox(Reader(table))
    async with Served(app) as served, asyncio.timeout(50):
        await table.emptied.wait()
        found = await measured(served)
    for panel in panels():
        for target in panel["targets"]:
            expression = target["expr"]
            for name in NAME.findall(expression):
                labels = re.findall(rf"{name}\{{([^}}]*)\}}", expression)
                used = {one for text in labels for one in re.findall(r"(\w+)=", text)}
                used |= {
                    word
                    for by in re.findall(r"by \(([^)]+)\)", expression)
                    for word in by.split(", ")
                }
                assert used - {"instance"} <= found[name], (panel["title"], name, used)


def test_the_dashboard_has_no_panel_twice_and_leaves_nothing_out() -> None:
    from onceward.metric_table import METRICS, full_name

    titles = [panel["title"] for panel in panels()]
    assert len(set(titles)) == len(titles)
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    shown = {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in wanted()}
    assert shown == {full_name(name) for name in METRICS}
