"""The Python client: all of the API, with retries that are safe.

    async with Client("http://localhost:8080", key="ow_…") as client:
        receipt = await client.accept("orders", {"item": "lamp"}, key="order-1042")
        job = await client.wait(receipt.id)

A call whose answer was lost, or that met a server on its way down or up, is made again until
`patience_s` is over. That never does anything twice: messages have their keys, ends of jobs their
tokens, requests for locks and timers their ids.
"""

from onceward.client.client import Client
from onceward.client.locks import HeldLock
from onceward.client.matches import MatchView
from onceward.client.rooms.live import Live
from onceward.client.rooms.objects import Item, Presence, RoomList, RoomMap, Saved
from onceward.client.rooms.replica import Who
from onceward.client.rooms.room import Room
from onceward.client.rooms.views import ListedRoom, RoomInfo, RoomMember, RoomState, RoomStep
from onceward.client.standing import Standing
from onceward.client.table_views import Ended, Leader, Place, Rated, Table, TableSeat, Waiter
from onceward.client.timer_views import Endpoint, Timer
from onceward.client.views import Claim, Job, Lock, LockStatus, Queue, Receipt
from onceward.client.work import Worker

__all__ = [
    "Claim",
    "Client",
    "Ended",
    "Endpoint",
    "HeldLock",
    "Item",
    "Job",
    "Leader",
    "ListedRoom",
    "Live",
    "Lock",
    "LockStatus",
    "MatchView",
    "Place",
    "Presence",
    "Queue",
    "Rated",
    "Receipt",
    "Room",
    "RoomInfo",
    "RoomList",
    "RoomMap",
    "RoomMember",
    "RoomState",
    "RoomStep",
    "Saved",
    "Standing",
    "Table",
    "TableSeat",
    "Timer",
    "Waiter",
    "Who",
    "Worker",
]
