"""Rock, paper, scissors by text message.

    from onceward.apps.rps import Game, Phones

    app = onceward.App("sqlite:///rps.db")
    game = Game(app, [Phones()])
    app.mount("/rps", game.site())

`rules` is the game, pure; `words` is all it says; `records` what it stores; `game` plays it on the
API of Onceward, and `duels` has its matches; `twilio`, `sns` and `phones` deliver texts.
"""

from onceward.apps.rps.game import Game
from onceward.apps.rps.phones import Phones

__all__ = ["Game", "Phones"]
