"""The rules of tic-tac-toe."""

from typing import Any

from onceward import DRAW, Outcome, Rules, won

LINES = (
    *((row, row + 1, row + 2) for row in (0, 3, 6)),
    *((column, column + 3, column + 6) for column in (0, 1, 2)),
    (0, 4, 8),
    (2, 4, 6),
)

Board = list[str]
"""Nine cells, row by row: X, O or empty."""


class TicTacToe(Rules):
    """Three in a row win."""

    name = "tictactoe"
    seats = ("X", "O")

    def start(self, seed: str) -> Board:
        return [""] * 9

    def moves(self, board: Board, seat: str) -> list[int]:
        return [cell for cell, mark in enumerate(board) if not mark]

    def apply(self, board: Board, seat: str, cell: Any) -> Board:
        return [*board[:cell], seat, *board[cell + 1 :]]

    def outcome(self, board: Board) -> Outcome | None:
        for one, two, three in LINES:
            if board[one] and board[one] == board[two] == board[three]:
                return won(board[one])
        return DRAW if all(board) else None
