"""Tables and games of an application, created together."""

from collections.abc import Mapping

from onceward.node import Node
from onceward.rooms.hub import Hub
from onceward.rooms.part import Rooms
from onceward.tables import Referee, Seats
from onceward.tables.games import Game, Matches
from onceward.tables.games.server import Games
from onceward.tables.live_view import LiveView
from onceward.tables.operations import acts
from onceward.tables.presence import Presence
from onceward.tables.referee import TableReferee
from onceward.tables.server import Tables


class TableRuntime:
    """The tables of a node, with live views, connections, and referees for all games."""

    def __init__(
        self, node: Node, hub: Hub, referees: Mapping[str, Referee], games: Mapping[str, Game]
    ) -> None:
        board = LiveView(node.parts.get(Rooms))
        self.seats = node.parts.get(Seats)
        self.seats.count_with(node.store.meters.count)
        self.tables = Tables(node.store, self.seats)
        self.games = Games(node.parts.get(Matches), games)
        self.seats.referees.update(referees)
        for rules in self.games.all_rules():
            self.seats.referees[rules.name] = TableReferee(rules, self.games, self.seats, board)
        hub.act = acts(self.tables)
        self._presence = Presence(node.store, hub, self.tables)

    async def close(self) -> None:
        """Stop tracking connections. Idempotent."""
        await self._presence.close()
        await self.tables.finish()
