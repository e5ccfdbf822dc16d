"""Tables and games, as an application has them: one hall with all that belongs together."""

from collections.abc import Mapping

from onceward.parts.games import Matches
from onceward.parts.seats import Referee, Seats
from onceward.service.games import Game, Games
from onceward.service.node import Node
from onceward.service.referee import TableReferee
from onceward.service.rooms.hub import Hub
from onceward.service.tables.acts import acts
from onceward.service.tables.board import RoomBoard
from onceward.service.tables.presence import Presence
from onceward.service.tables.tables import Tables


class Hall:
    """The tables of a node, with live views, connections, and referees for all games."""

    def __init__(
        self, node: Node, hub: Hub, referees: Mapping[str, Referee], games: Mapping[str, Game]
    ) -> None:
        store, slots = node.store, node.schedule.slots
        board = RoomBoard(node.rooms)
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
