"""Tic-tac-toe: every game there is, from the first move to the last."""

from collections import Counter
from itertools import permutations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.tictactoe.rules import LINES, Board, TicTacToe
from onceward.tables.games import DRAW, MatchBegun, MatchMoved, replay, won

GAME = TicTacToe()


def test_of_all_games_there_are_as_many_as_is_known() -> None:
    ends: Counter[str] = Counter()
    counted: dict[tuple[str, ...], Counter[str]] = {}

    def games(board: Board, turn: int) -> Counter[str]:
        key = tuple(board)
        if key not in counted:
            outcome = GAME.outcome(board)
            if outcome is not None:
                counted[key] = Counter({outcome.winners[0] if outcome.winners else "draw": 1})
            else:
                found: Counter[str] = Counter()
                seat = GAME.seats[turn % 2]
                for cell in GAME.moves(board, seat):
                    found.update(games(GAME.apply(board, seat, cell), turn + 1))
                counted[key] = found
        return counted[key]

    ends = games(GAME.start(""), 0)
    assert ends == {"X": 131_184, "O": 77_904, "draw": 46_080}
    assert len(counted) == 5_478, "positions that can come up"


@settings(max_examples=50)
@given(st.permutations(range(9)))
def test_a_game_ends_with_the_first_line_or_the_last_cell(cells: list[int]) -> None:
    log = [MatchBegun("1", "tictactoe", {"X": "Ann", "O": "Bob"}, "", 0)]
    moves = [MatchMoved(GAME.seats[at % 2], cell, at) for at, cell in enumerate(cells)]
    for count in range(len(cells) + 1):
        match = replay(GAME, [*log, *moves[:count]])[-1]
        mine = {seat: {move.move for move in moves[:count] if move.seat == seat} for seat in "XO"}
        winners = [seat for seat in "XO" if any(set(line) <= mine[seat] for line in LINES)]
        if winners:
            assert match.outcome == won(*winners)
            return
        assert match.outcome == (DRAW if count == 9 else None)


def test_it_is_known_by_its_name_and_x_moves_first() -> None:
    assert (GAME.name, GAME.seats) == ("tictactoe", ("X", "O"))
    assert tuple(GAME.movers(GAME.start(""), 0)) == ("X",)


def test_lines_are_all_rows_columns_and_diagonals() -> None:
    # Of a magic square the lines are what adds up to 15.
    magic = (2, 7, 6, 9, 5, 1, 4, 3, 8)
    found = {
        frozenset(cells)
        for cells in permutations(range(9), 3)
        if sum(magic[cell] for cell in cells) == 15
    }
    assert found == {frozenset(line) for line in LINES}
    assert msgspec.json.decode(msgspec.json.encode(GAME.start(""))) == [""] * 9
