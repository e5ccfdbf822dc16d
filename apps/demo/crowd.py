"""Simulated users: bots that play tic-tac-toe, and two cursors on the board."""

import asyncio
import math
from collections.abc import Callable
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

from apps.demo.settings import BOTS
from apps.tictactoe.rules import LINES
from onceward import BadInput
from onceward.client import Client, Room

PLAYERS = ("bot-1", "bot-2", "bot-3")
PEOPLE = ("Planner", "Reviewer")
BOARD = "welcome"
_MOVE_S = 1.2
_SIGN_OF_LIFE = 25  # moves
_STEP_S, _STEPS = 0.12, 12
_REST_S = 1.5
_SEEDS = (
    ("lemon", -470, -130, "Drag me.\nOpen this page twice, and see it move."),
    ("sky", -215, -190, "Double-click anywhere for a new note"),
    ("mint", 45, -120, "Kill the server on the front page: nothing here is lost"),
    ("rose", 300, -175, "The clock below shows the history of the board"),
    ("lilac", -90, 75, "Offline? Keep writing. Changes are sent when you are back."),
)


class Bots:
    """Bots that sit at a table, play, and wait for the next game."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._chance = client.ids.fraction

    async def run(self) -> None:
        """Play until cancelled."""
        client = self._client
        await client.call("GET", "tictactoe", "tables", type=dict)  # creates the tables
        async with client.live() as live:
            room = await live.join(f"table:{BOTS}")
            for number in count():
                if number % _SIGN_OF_LIFE == 0:
                    for bot in PLAYERS:
                        await client.tables.join(BOTS, user=bot)  # idempotent
                        await client.tables.heartbeat(BOTS, user=bot)
                await client.clock.sleep(_MOVE_S)
                await self._move(room.map("game").get("now"))

    async def leave(self) -> None:
        for bot in PLAYERS:
            await self._client.tables.leave(BOTS, user=bot)

    async def _move(self, game: Any) -> None:
        """Make the move of the bot whose turn it is, if it is one."""
        if game is None or not game["awaited"]:
            return
        seat = game["awaited"][0]
        user = game["players"][seat]
        if user not in PLAYERS:
            return
        seen = {name: game[name] for name in ("match", "number")}
        move = {"move": choose(game["state"], seat, self._chance), **seen}
        key = f"{game['match']}:{game['number']}"
        try:
            await self._client.tables.move(BOTS, move=move, user=user, key=key)
        except BadInput:
            pass  # the game has changed since


def choose(state: list[str], seat: str, chance: Callable[[], float]) -> int:
    """Choose a cell: one that wins, or any free one."""
    free = [cell for cell, mark in enumerate(state) if not mark]
    for cell in free:
        then = [*state[:cell], seat, *state[cell + 1 :]]
        if any(all(then[one] == seat for one in line) for line in LINES):
            return cell
    return free[int(chance() * len(free))]


class People:
    """Simulated users who point at the board and move its first notes a little."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def run(self) -> None:
        """Run until cancelled."""
        client = self._client
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            for number, name in enumerate(PEOPLE):
                ticket = await client.call(
                    "POST", "board", BOARD, "ticket", type=dict[str, str], body={"name": name}
                )
                live = await stack.enter_async_context(client.live(token=ticket["token"]))
                room = await live.join(ticket["room"])
                if number == 0:
                    _seed(room)
                person = Person(room, name, client)
                group.create_task(person.stroll(number))


class Person:
    """A simulated user with a cursor."""

    def __init__(self, room: Room, name: str, client: Client) -> None:
        self._room = room
        self._name = name
        self._clock = client.clock
        self._chance = client.ids.fraction
        self._x, self._y = 0.0, 0.0

    async def stroll(self, number: int) -> None:
        """Move from note to note, and shift each a little."""
        for turn in count(number * 2):
            note, (home_x, home_y) = self._note(turn)
            x, y = home_x + 60 * (self._chance() - 0.5), home_y + 60 * (self._chance() - 0.5)
            if note is not None:
                place = self._room.map("places").get(note, {"x": x, "y": y})
                await self._go(place["x"] + 100, place["y"] + 40)
            await self._go(x + 100, y + 40, note)
            await self._clock.sleep(_REST_S * (1 + number + self._chance()))

    def _note(self, turn: int) -> tuple[str | None, tuple[float, float]]:
        """One of the first notes, if it still exists, and its original position."""
        _, x, y, text = _SEEDS[turn % len(_SEEDS)]
        texts = self._room.map("texts")
        found = [id_ for id_, _ in self._room.list("notes").items() if texts.get(id_) == text]
        return (found[0] if found else None), (x, y)

    async def _go(self, x: float, y: float, note: str | None = None) -> None:
        """Move the cursor, optionally with a note."""
        from_x, from_y = self._x, self._y
        for step in range(1, _STEPS + 1):
            await self._clock.sleep(_STEP_S)
            share = (1 - math.cos(math.pi * step / _STEPS)) / 2
            self._x, self._y = from_x + (x - from_x) * share, from_y + (y - from_y) * share
            here = {"name": self._name, "x": round(self._x), "y": round(self._y)}
            if note is not None:
                here["note"] = note
                place = {"x": round(self._x) - 100, "y": round(self._y) - 40}
                self._room.map("places").set(note, place)
            self._room.presence("people").set(here)


def _seed(room: Room) -> None:
    """Add a few notes to an empty board."""
    notes = room.list("notes")
    if len(notes):
        return
    with room.batch():
        for colour, x, y, text in _SEEDS:
            id_ = notes.push({"colour": colour, "by": PEOPLE[0]}).id
            room.map("places").set(id_, {"x": x, "y": y})
            room.map("texts").set(id_, text)
