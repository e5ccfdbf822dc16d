"""The game of the guide is a game: it is played as it stands there."""

import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from onceward.parts.games import Begun, Rules, replay
from onceward.parts.games import match as referee
from tests.console import blocks
from tests.server_process import ROOT, environment

GUIDE = ROOT / "docs" / "games.md"


def nim() -> Rules:
    names: dict[str, type[Rules]] = {}
    exec(blocks(GUIDE, "python")[0], names)
    return names["Nim"]()


NIM = nim()


def test_the_game_is_a_dozen_lines() -> None:
    lines = [line for line in blocks(GUIDE, "python")[0].splitlines() if line.strip()]
    assert len(lines) <= 13


def test_the_example_runs_as_it_stands(tmp_path: Path) -> None:
    rules, play, _ = blocks(GUIDE, "python")
    (tmp_path / "nim.py").write_text(rules + play)
    done = subprocess.run(
        [sys.executable, "nim.py"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[:3] == [
        "this move cannot be made now",
        "('second',) wins: {'first': 'ann', 'second': 'ben'}",
        "then {'first': 'cas', 'second': 'ben'}",
    ]
    assert said[3] == "0 {'left': 12, 'taker': None} ['first']"
    assert said[-1] == "6 {'left': 0, 'taker': 'second'} []"
    assert len(said) == 10


@given(st.data())
def test_who_leaves_a_multiple_of_four_wins(data: st.DataObject) -> None:
    # With 12 matches the second one wins, whatever the first does.
    log = [Begun("1", "nim", {"first": "ann", "second": "ben"}, "", 0)]
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
