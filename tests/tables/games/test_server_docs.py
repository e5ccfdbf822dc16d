"""The game of the guide is a game: it is played as it stands there."""

from hypothesis import given
from hypothesis import strategies as st

from onceward.tables.games import MatchBegun, Rules, replay
from onceward.tables.games import match as referee
from tests.console import blocks
from tests.server_process import ROOT

GUIDE = ROOT / "docs" / "games.md"


def nim() -> Rules:
    names: dict[str, type[Rules]] = {}
    exec(blocks(GUIDE, "python")[0], names)
    return names["Nim"]()


NIM = nim()


def test_the_game_is_a_dozen_lines() -> None:
    lines = [line for line in blocks(GUIDE, "python")[0].splitlines() if line.strip()]
    assert len(lines) <= 13


@given(st.data())
def test_who_leaves_a_multiple_of_four_wins(data: st.DataObject) -> None:
    # With 12 matches the second one wins, whatever the first does.
    log = [MatchBegun("1", "nim", {"first": "ann", "second": "ben"}, "", 0)]
    match = replay(NIM, log)[-1]
    while match.outcome is None:
        [seat] = match.awaited
        moves = list(NIM.moves(match.state, seat))
        wise = match.state["left"] % 4
        move = wise if seat == "second" else data.draw(st.sampled_from(moves))
        entry = referee.play(NIM, match, seat, move, 1)
        assert entry is not None
        match = referee.step(NIM, match, entry)
    assert match.outcome.winners == ("second",)
