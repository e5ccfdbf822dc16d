"""Local steps that await confirmation, with their results."""

from collections.abc import Callable, Sequence

from onceward.api.room_changes import ListOp, RoomOperation
from onceward.client.transport import kind_of
from onceward.errors import OncewardError, find_kind
from onceward.rooms.state import Effect

Place = tuple[str, str, str | None]
"""Where something stands: `map` or `list`, its name, and the key or the item's id, or None for
the map or list itself."""


class Step:
    """Operations that this client has applied at once, and that a server takes as one."""

    def __init__(self, ops: list[RoomOperation]) -> None:
        self.n = 0
        """The number under which it is sent."""
        self.ops = ops
        self.effects: list[Effect] | None = []
        """What it changes, on top of all that comes before it; None if it cannot be applied as
        things are, and waits for the server to say so."""
        self.below: dict[Place, Step | None] = {}
        """Whose was the latest change to the same places before."""
        self.numbered: dict[str, int] = {}
        """How often lists had been numbered anew by then: positions from before say little."""
        self.undone: Step | None = None
        """The step that this one undoes."""
        self.taken_back = False
        """Whether it was undone: where it is still the latest, that has changed nothing."""
        self.kept = False
        """Whether it may yet be undone."""
        self.bytes = 0
        self.seq: int | None = None
        self.error: OncewardError | None = None
        self.answered = False
        self._hooks: list[Callable[[Step], None]] = []

    def on_answer(self, hook: "Callable[[Step], None]") -> None:
        """Call `hook` once the server has answered; at once if it has."""
        if self.answered:
            hook(self)
        else:
            self._hooks.append(hook)

    def answer(self, seq: int | None = None, error: OncewardError | None = None) -> None:
        """It is durable, under a sequence number if that is known, or has failed. The first
        answer counts."""
        if self.answered:
            return
        self.seq, self.error, self.answered = seq, error, True
        if not self.kept:
            self.below = {}
        hooks, self._hooks = self._hooks, []
        for hook in hooks:
            hook(self)


def places_of(ops: Sequence[RoomOperation], effects: Sequence[Effect]) -> list[Place]:
    """Where operations have changed something: not where items were only numbered anew."""
    named = {(does.list, getattr(does, "id", None)) for does in ops if isinstance(does, ListOp)}
    return [
        (kind, name, key)
        for kind, name, key, _, _ in effects
        if kind == "map" or key is None or (name, key) in named or (name, None) in named
    ]


def error_of(code: str, detail: str) -> OncewardError:
    """The error that a server names."""
    if find_kind(code) is not None:
        return kind_of(code)(detail, code=code)
    return OncewardError(f"{detail} [{code[:100]}]", code="internal")
