"""Winner-stays tic-tac-toe.

    from apps.tictactoe import Club

    app = onceward.App("sqlite:///club.db")
    app.mount("/tictactoe", Club(app).site())

`rules` is the pure game; `club` has its tables and the page.
"""

from apps.tictactoe.club import Club
from apps.tictactoe.rules import TicTacToe

__all__ = ["Club", "TicTacToe"]
