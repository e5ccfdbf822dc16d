"""The API for synchronous code: scripts, notebooks, and frameworks with threads.

    from onceward.sync import App

    with App("sqlite:///app.db") as app:
        receipt = app.send("greetings", {"name": "Ann"}, key="message-1")
        print(app.job(receipt.id).state)

`App` and `Client` have the methods of `onceward.App` and `onceward.client.Client` as plain
functions. They can be called from many threads at once. All of them use one event loop, which runs
in a background thread, so a running event loop of the caller does not matter.
"""

from typing import TYPE_CHECKING

from onceward.lazy import lazy

if TYPE_CHECKING:
    from onceward.api.queues import QueueKeywords
    from onceward.functions import is_async
    from onceward.job_options import JobKeywords, SendKeywords
    from onceward.sync.app.app import App
    from onceward.sync.app.declare import Declare
    from onceward.sync.app.locks import Lock
    from onceward.sync.app.transaction import Transaction
    from onceward.sync.client.client import Client
    from onceward.sync.client.live import Live, Presence, Room, RoomList, RoomMap, Saved
    from onceward.sync.client.live_place import LivePlace
    from onceward.sync.client.work import Worker
    from onceward.sync.handlers import HandlerFunction

__all__ = [
    "App",
    "Client",
    "Declare",
    "HandlerFunction",
    "JobKeywords",
    "Live",
    "LivePlace",
    "Lock",
    "Presence",
    "QueueKeywords",
    "Room",
    "RoomList",
    "RoomMap",
    "Saved",
    "SendKeywords",
    "Transaction",
    "Worker",
    "is_async",
]

# Loaded on first use, so that clients load neither the store nor an engine, and applications need
# no HTTP library.
__getattr__ = lazy(
    __name__,
    {
        "App": "onceward.sync.app.app",
        "Client": "onceward.sync.client.client",
        "Declare": "onceward.sync.app.declare",
        "HandlerFunction": "onceward.sync.handlers",
        "JobKeywords": "onceward.job_options",
        "QueueKeywords": "onceward.api.queues",
        "SendKeywords": "onceward.job_options",
        "is_async": "onceward.functions",
        "Live": "onceward.sync.client.live",
        "LivePlace": "onceward.sync.client.live_place",
        "Lock": "onceward.sync.app.locks",
        "Presence": "onceward.sync.client.live",
        "Room": "onceward.sync.client.live",
        "RoomList": "onceward.sync.client.live",
        "RoomMap": "onceward.sync.client.live",
        "Saved": "onceward.sync.client.live",
        "Transaction": "onceward.sync.app.transaction",
        "Worker": "onceward.sync.client.work",
    },
)
