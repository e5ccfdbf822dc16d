"""Rock, paper, scissors by text message.

    from apps.rps import Game, Phones, Web

    app = onceward.App("sqlite:///rps.db")
    game = Game(app, [Phones(), Web()])
    app.mount("/rps", game.site())

`rules` is the pure game; `words` has all texts to players; `records` the stored data; `game` runs
it on the API of Onceward, and `duels` has its matches; `twilio`, `sns`, `phones` and `web` deliver
texts.
"""

from apps.rps.game import Game
from apps.rps.phones import Phones
from apps.rps.web import Web, grants_for

__all__ = ["Game", "Phones", "Web", "grants_for"]
