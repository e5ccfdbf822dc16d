"""Elo ratings in whole numbers."""

import math
from collections.abc import Collection, Mapping

from onceward import limits
from onceward.api.tables import Rating


def expected(mine: int, other: int) -> float:
    """The expected score of a rating against another, from 0 to 1."""
    return 1 / (1 + math.pow(10, (other - mine) / 400))


def rated(
    before: Mapping[str, Rating], winners: Collection[str], step: int, now_ms: int
) -> dict[str, Rating]:
    """Return the ratings after a game; without winners it is a draw.

    Each pair of players counts as one game with a fraction of the step. The sum of all ratings is
    constant, unless a rating would fall below 0.
    """
    users = list(before)
    scores = {user: _score(user, winners) for user in users}
    change = dict.fromkeys(users, 0)
    for place, one in enumerate(users):
        for other in users[place + 1 :]:
            won = 0.5 + (scores[one] - scores[other]) / 2
            share = won - expected(before[one].rating, before[other].rating)
            points = round(step * share / (len(users) - 1))
            change[one] += points
            change[other] -= points
    return {
        user: Rating(
            min(max(known.rating + change[user], 0), limits.SEATS_RATING_MAX),
            known.games + 1,
            known.won + (user in winners),
            known.drawn + (not winners),
            now_ms,
        )
        for user, known in before.items()
    }


def _score(user: str, winners: Collection[str]) -> float:
    return 1.0 if user in winners else 0.0
