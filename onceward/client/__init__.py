"""The Python client for the whole API, with safe retries.

    async with Client("http://localhost:8080", key="ow_…") as client:
        receipt = await client.accept("orders", {"item": "lamp"}, key="order-1042")
        job = await client.wait(receipt.id)

A call whose answer was lost, or that met a server on its way down or up, is made again until
`patience_s` is over. That never does anything twice: messages have their keys, ends of jobs their
tokens, requests for locks and timers their ids.
"""

from onceward.api.endpoints import Endpoint
from onceward.api.jobs import ClaimedJob, Job
from onceward.api.locks import HeldLocks, Lock
from onceward.api.matches import MatchView
from onceward.api.messages import Receipt
from onceward.api.queues import Queue
from onceward.api.tables import Ending, Leader, Place, Rating, Seat, Table, Waiter
from onceward.api.timers import Timer
from onceward.client.client import Client
from onceward.client.locks import HeldLock
from onceward.client.rooms.live import Live
from onceward.client.rooms.objects import Item, Presence, RoomList, RoomMap, Saved
from onceward.client.rooms.replica import Who
from onceward.client.rooms.room import Room
from onceward.client.rooms.views import ListedRoom, RoomInfo, RoomMember, RoomState, RoomStep
from onceward.client.standing import Standing
from onceward.client.work import Worker

__all__ = [
    "ClaimedJob",
    "Client",
    "Ending",
    "Endpoint",
    "HeldLock",
    "HeldLocks",
    "Item",
    "Job",
    "Leader",
    "ListedRoom",
    "Live",
    "Lock",
    "MatchView",
    "Place",
    "Presence",
    "Queue",
    "Rating",
    "Receipt",
    "Room",
    "RoomInfo",
    "RoomList",
    "RoomMap",
    "RoomMember",
    "RoomState",
    "RoomStep",
    "Saved",
    "Seat",
    "Standing",
    "Table",
    "Timer",
    "Waiter",
    "Who",
    "Worker",
]
