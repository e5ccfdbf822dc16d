"""Tables and games, as an application has them: one hall with all that belongs together."""

from collections.abc import Mapping

from onceward.node import Node
from onceward.rooms.hub import Hub
from onceward.tables import Referee, Seats
from onceward.tables.games import Matches
from onceward.tables.games.server import Game, Games
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
        store, slots = node.store, node.schedule.slots
        board = LiveView(node.rooms)
        self.seats = Seats(store.ids, slots, board)
        self.tables = Tables(store, self.seats, node.dispatcher)
        self.games = Games(Matches(store.ids, slots), games, node.dispatcher)
        self.seats.referees.update(referees)
        for rules in self.games.all_rules():
            self.seats.referees[rules.name] = TableReferee(rules, self.games, self.seats, board)
        hub.act = acts(self.tables)
        self._presence = Presence(store, hub, self.tables)

    async def close(self) -> None:
        """Notice no connections any more; twice is once."""
        await self._presence.close()
        await self.tables.finish()
