"""Calm runs whose histories tests then falsify."""

from collections.abc import Callable
from typing import Any

import pytest

from onceward.testing.simulation import Call, History, Scenario, Violation, Weather
from onceward.testing.simulation.history import Answer
from onceward.testing.simulation.world import World


class Judged:
    """A calm run of a scenario, judged and found right; then to be falsified."""

    def __init__(self, scenario: type[Scenario], mode: str = "shared", seed: int = 0) -> None:
        self.scenario = scenario()
        self.history: History = World(self.scenario, seed, mode, 1, Weather()).run()

    def calls(self, what: str, where: Callable[[Any], bool] = lambda body: True) -> list[Call]:
        """Calls of a kind whose answer fulfils a condition, in the order of their answers."""
        found = [c for c in self.history.calls if c.request[0] == what and where(c.answer)]
        return sorted(found, key=lambda call: call.returned_ns)

    def answer(self, call: Call, body: Any) -> None:
        """Let a call have got another answer."""
        first = call.answers[0]
        call.answers[0] = Answer(first.returned_ns, first.node, body)

    def store(self, partition: str, sort: str, value: Any) -> None:
        """Let another value stand in the database."""
        key = (partition, sort)
        self.history.final[key] = self.history.final[key]._replace(value=value)

    def violates(self, kind: str, match: str | None = None) -> None:
        """The falsified history must be found out, as what it is."""
        with pytest.raises(Violation, match=match) as found:
            self.scenario.judge(self.history)
        assert found.value.kind == kind
