"""Tabs of one window of a real browser, of which one is seen. Those of playwright always are: so
these are driven without it, by the browser's own protocol."""

import asyncio
import json
from itertools import count
from typing import Any, Self

_numbers = count(1)


class Tab:
    """A tab, in the window that all of them share; see `tests.tabs.launched`."""

    def __init__(self, devtools: Any) -> None:
        self._devtools = devtools
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._loaded = asyncio.Event()
        devtools.on("Target.receivedMessageFromTarget", self._heard)

    @classmethod
    async def open(cls, devtools: Any, url: str) -> Self:
        """A new tab in front of the others. `devtools` is a session of the browser."""
        tab = cls(devtools)
        made = await devtools.send("Target.createTarget", {"url": "about:blank"})
        tab._id = made["targetId"]
        asked = {"targetId": tab._id, "flatten": False}
        tab._session = (await devtools.send("Target.attachToTarget", asked))["sessionId"]
        await tab._send("Page.enable")
        tab._loaded.clear()
        await tab._send("Page.navigate", url=url)
        await tab._loaded.wait()
        return tab

    async def show(self) -> None:
        """Put it in front: those behind it are hidden."""
        await self._devtools.send("Target.activateTarget", {"targetId": self._id})

    async def freeze(self) -> None:
        """Let nothing on its page go on, until it is shown: as browsers do to save power."""
        await self._send("Page.setWebLifecycleState", state="frozen")

    async def evaluate(self, script: str) -> Any:
        """What an expression comes to, once it does."""
        asked = {"expression": script, "awaitPromise": True, "returnByValue": True}
        found = await self._send("Runtime.evaluate", **asked)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def _send(self, method: str, **params: Any) -> Any:
        number = next(_numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        message = json.dumps({"id": number, "method": method, "params": params})
        await self._devtools.send(
            "Target.sendMessageToTarget", {"sessionId": self._session, "message": message}
        )
        async with asyncio.timeout(60):
            said = await answer
        assert "error" not in said, said
        return said["result"]

    def _heard(self, event: Any) -> None:
        if event["sessionId"] != self._session:
            return
        said = json.loads(event["message"])
        if said.get("method") == "Page.loadEventFired":
            self._loaded.set()
        elif said.get("id") in self._waiting:
            self._waiting.pop(said["id"]).set_result(said)
