"""Faults of a simulated world and their rates, drawn from the seed.

Each run has a different mixture, with some faults frequent and some left out. Faults that could
hide each other occur separately in some runs and together in others.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from onceward.testing.plan import COMMIT_FAULTS, LOSSES, Chance, Fault
from onceward.testing.simulation.history import Mode

if TYPE_CHECKING:
    from onceward.testing.simulation.world import World

CLOCK_OFFSET_MS_MAX: Final = 200
"""The maximum offset of a node's wall clock at its start."""
PAUSE_S_MAX: Final = 40.0
"""Longer than a lease, and shorter than the time after which expired records are removed."""

_ALWAYS = (
    "conflict",
    "function run again",
    "message dropped",
    "message duplicated",
    "message reordered",
    "crash at random",
    "crash after an answer",
    "restart",
    "paused",
    "wall clock set ahead",
    "wall clock set back",
    "caller hung up",
    Fault.CONFLICT,
    Fault.UNAVAILABLE,
    Fault.CRASH_BEFORE,
    Fault.CRASH_AFTER,
    Fault.CRASH_ANSWER,
    Fault.DEAF,
)
KINDS: Final[dict[Mode, tuple[str, ...]]] = {
    "shared": (*map(str, (*_ALWAYS, *LOSSES)), "late commit applied", "late commit refused"),
    "local": (*map(str, _ALWAYS), "unsynced commit gone in a crash"),
}
"""The faults that must occur at least once in a sufficient set of runs."""


@dataclass(slots=True)
class Weather:
    """The rates of faults, per call or message; gaps are in seconds."""

    engine: dict[Fault, float] = field(default_factory=dict)
    latency_s: float = 0.002
    slow_s: float = 0.0
    sync_s: float = 0.002
    last_answer: float = 0.0
    """How often a node crashes directly after sending a response, which must be durable by then."""
    drop: float = 0.0
    duplicate: float = 0.0
    delay_s: float = 0.005
    slow_delay_s: float = 0.0
    gaps_s: dict[str, float] = field(default_factory=dict)
    """The mean time between two events, by the name of a method of `Chaos`."""
    lasts_s: float = 30.0
    """The time after which faults end, so that waiting clients can get responses."""

    @classmethod
    def draw(
        cls, random: random.Random, mode: Mode, lasts_s: Sequence[float] = (30.0,)
    ) -> "Weather":
        """A mixture for one run."""

        def rate(most: float) -> float:
            return 0.0 if random.random() < 0.35 else most * random.random()

        faults = [f for f in (*COMMIT_FAULTS, Fault.DEAF) if mode == "shared" or f not in LOSSES]
        engine = {fault: rate(0.04 if fault.startswith("crash") else 0.12) for fault in faults}
        engine[Fault.DEAF] *= 4
        gaps_s = {
            name: random.choice((0.4, 1.0, 3.0))
            for name in ("crash", "pause", "set_wall_clock", "hang_up")
            if random.random() < 0.6
        }
        return cls(
            engine,
            latency_s=random.choice((0.001, 0.005, 0.03)),
            slow_s=random.choice((0.05, 1.0, 5.0)),
            sync_s=random.choice((0.001, 0.03, 0.3)),
            last_answer=rate(0.15),
            drop=rate(0.2),
            duplicate=rate(0.3),
            delay_s=random.choice((0.001, 0.005, 0.03)),
            slow_delay_s=random.choice((0.05, 1.0, 10.0)),
            gaps_s=gaps_s,
            lasts_s=random.choice(lasts_s),
        )

    def plan(self, random: random.Random) -> Chance:
        return Chance(random, self.engine, latency_s=self.latency_s, slow_s=self.slow_s)


class Chaos:
    """Applies faults to the servers of a world."""

    def __init__(self, world: "World", random: random.Random) -> None:
        self._world = world
        self._random = random
        self._over = False

    def begin(self) -> None:
        for name, gap_s in self._world.weather.gaps_s.items():
            self._next(getattr(self, name), gap_s)

    def end(self) -> None:
        self._over = True

    def _next(self, event: Callable[[], None], gap_s: float) -> None:
        def happen() -> None:
            if not self._over:
                if self._world.allows(event.__name__.replace("_", " ")):
                    event()
                self._next(event, gap_s)

        self._world.later(self._random.expovariate(1 / gap_s), happen)

    def crash(self) -> None:
        """Kill a node in any state."""
        node = self._random.choice(self._world.servers).node
        if node is not None:
            node.crash("crash at random")

    def pause(self) -> None:
        """Pause a node for a while, possibly for longer than its leases."""
        node = self._random.choice(self._world.servers).node
        pause_s = self._random.random() * self._random.choice((0.1, 2.0, PAUSE_S_MAX))
        if node is not None and node.process.running:
            self._world.happened("paused", f"{node.name} for {pause_s:.3f} s")
            node.process.pause()
            self._world.later(pause_s, node.resume)

    def set_wall_clock(self) -> None:
        """Change a node's wall clock slightly, or by hours."""
        node = self._random.choice(self._world.servers).node
        step_ms = round(10 ** (1 + 6 * self._random.random()))
        if self._random.random() < 0.5:
            step_ms = -step_ms
        if node is not None:
            direction = "ahead" if step_ms > 0 else "back"
            self._world.happened(f"wall clock set {direction}", f"{node.name} by {step_ms} ms")
            node.clock.jump_wall(step_ms)

    def hang_up(self) -> None:
        """Cancel one or all running requests of a node, as when connections break."""
        node = self._random.choice(self._world.servers).node
        if node is not None and node.process.running and node.serving:
            ids = list(node.serving)
            if self._random.random() < 0.7:
                ids = [self._random.choice(ids)]
            self._world.happened("caller hung up", f"{node.name} {ids}")
            for id_ in ids:
                node.serving[id_].cancel()
