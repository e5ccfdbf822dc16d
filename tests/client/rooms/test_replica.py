"""A copy of a room does as the vectors say, which are for clients in other languages, too."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.client.rooms.script import Player

CASES = json.loads(Path("tests/vectors/rooms/replica.json").read_text())["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"].replace(" ", "_"))
def test_a_copy_does_as_the_vectors_say(case: Any) -> None:
    player = Player(case["client"])
    for act in case["acts"]:
        assert player.play(act) == act["then"]
