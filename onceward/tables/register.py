"""Declaration of tables: kinds of records and due entries of turns and waits."""

from typing import Any

from onceward.parts import Due, Kind, Part
from onceward.rooms.part import Rooms
from onceward.tables import (
    CLOCK_DUE,
    CLOCK_WRITES,
    EXPIRE_WRITES,
    PURGE_DUE,
    PURGE_WRITES,
    WAIT_DUE,
    Rating,
    Seats,
)
from onceward.tables.invariants import RULES
from onceward.tables.live_view import LiveView
from onceward.tables.records import Head, Info, Stand, Wait

PART = Part(
    kinds=(
        Kind("tables", "{id}", str, "a table in the list of tables"),
        Kind("table#{id}", "info", Info, "the policy of a table"),
        Kind("table#{id}", "head", Head, "the seats, lanes and current game of a table"),
        Kind("stand#{table}#{epoch}", "{user}", Stand, "the place of a user at a table"),
        Kind("heartbeat#{table}#{epoch}", "{user}", int, "the time of a waiter's last heartbeat"),
        Kind("lane#{table}#{epoch}", "{lane}#wait#{number}", Wait, "a waiter in a lane"),
        Kind(
            "lane#{table}#{epoch}", "{lane}#block#{number}", str, "the numbers of a block that left"
        ),
        Kind(
            "lane#{table}#{epoch}",
            "{lane}#group#{number}",
            list[int],
            "how many numbers of each block of a group have left",
        ),
        Kind("rating#{ladder}", "{user}", Rating, "the rating of a player"),
        Kind("ladder#{ladder}", "{rank}#{user}", Any, "a player by rating, the best first"),
    ),
    rules=RULES,
    due=(
        Due(CLOCK_DUE, Seats.tick, CLOCK_WRITES),
        Due(WAIT_DUE, Seats.expire, EXPIRE_WRITES, Seats.read_to_expire),
        Due(PURGE_DUE, Seats.purge, PURGE_WRITES),
    ),
    make=lambda made: Seats(made.ids, made.slots, LiveView(made.get(Rooms))),
)
