"""The Python client for the whole API, with safe retries.

    async with Client("http://localhost:8080", key="ow_…") as client:
        receipt = await client.send("orders", {"item": "lamp"}, key="order-1042")
        job = await client.jobs.wait(receipt.id)

Each operation of the API is a method of a namespace: `jobs.retry` is `client.jobs.retry(id)`.
Durations are in seconds. If a response is lost or the server restarts, the client repeats the
request for up to `patience_s`. Repeated requests take effect once: messages have keys, completed
jobs have tokens, and new locks, timers, rooms and tables have ids.
"""

from onceward.extras import missing

try:
    import aiohttp  # noqa: F401 - the error names the extra
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"onceward.client needs {missing(error)}", name=error.name) from error

from onceward.api.endpoints import Endpoint
from onceward.api.job_updates import JobUpdate
from onceward.api.jobs import ClaimedJob, Job, JobOutcome
from onceward.api.locks import HeldLocks, Lock
from onceward.api.matches import MatchView
from onceward.api.messages import Receipt
from onceward.api.queues import Queue
from onceward.api.rooms import ListedRoom, RoomEntry, RoomMember, RoomSnapshot
from onceward.api.rooms import Room as RoomInfo
from onceward.api.tables import Ending, Leader, Place, Rating, Seat, Table, Waiter
from onceward.api.timers import Timer
from onceward.client.client import Client
from onceward.client.live_place import LivePlace
from onceward.client.locks import HeldLock
from onceward.client.rooms.live import Live
from onceward.client.rooms.objects import Item, Presence, RoomList, RoomMap, Saved
from onceward.client.rooms.replica import Who
from onceward.client.rooms.room import Room
from onceward.client.work import SyncWorkerJob, Worker, WorkerJob

__all__ = [
    "ClaimedJob",
    "Client",
    "Ending",
    "Endpoint",
    "HeldLock",
    "HeldLocks",
    "Item",
    "Job",
    "JobOutcome",
    "JobUpdate",
    "Leader",
    "ListedRoom",
    "Live",
    "LivePlace",
    "Lock",
    "MatchView",
    "Place",
    "Presence",
    "Queue",
    "Rating",
    "Receipt",
    "Room",
    "RoomEntry",
    "RoomInfo",
    "RoomList",
    "RoomMap",
    "RoomMember",
    "RoomSnapshot",
    "Saved",
    "Seat",
    "SyncWorkerJob",
    "Table",
    "Timer",
    "Waiter",
    "Who",
    "Worker",
    "WorkerJob",
]
