"""Bots play by the rules, and win where they can."""

from hypothesis import given
from hypothesis import strategies as st

from apps.demo.crowd import choose
from apps.tictactoe import TicTacToe
from onceward.tables.games import won

RULES = TicTacToe()


@given(st.lists(st.floats(0, 0.999), min_size=9, max_size=9))
def test_bots_make_moves_until_the_game_is_over(chances: list[float]) -> None:
    board, seats = RULES.start(""), ["X", "O"]
    for chance in chances:
        seat, other = seats
        cell = choose(board, seat, lambda chance=chance: chance)  # type: ignore[misc]
        free = RULES.moves(board, seat)
        assert cell in free
        wins = [one for one in free if RULES.outcome(RULES.apply(board, seat, one)) == won(seat)]
        assert not wins or cell in wins
        board, seats = RULES.apply(board, seat, cell), [other, seat]
        if RULES.outcome(board) is not None:
            return
    raise AssertionError("the game is not over")
