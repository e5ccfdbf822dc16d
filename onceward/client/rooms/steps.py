"""Local steps that await confirmation, with their results."""

from collections.abc import Callable, Sequence

from onceward.api.room_changes import ListOp, RoomOperation
from onceward.errors import OncewardError, class_of, find_kind
from onceward.rooms.state import Effect

Place = tuple[str, str, str | None]
"""A place in the state: `map` or `list`, its name, and the key or item id, or None for the map or
list itself.
"""


class Step:
    """Operations that are applied locally at once, and by the server as one step."""

    def __init__(self, ops: list[RoomOperation]) -> None:
        self.n = 0
        """The number with which it is sent."""
        self.ops = ops
        self.effects: list[Effect] | None = []
        """Its changes on top of all earlier steps; None if it conflicts with the current state and
        waits for the server's rejection.
        """
        self.below: dict[Place, Step | None] = {}
        """The previous latest step of each changed place."""
        self.numbered: dict[str, int] = {}
        """How often lists were renumbered before it; older positions are obsolete."""
        self.undone: Step | None = None
        """The step that this one undoes."""
        self.taken_back = False
        """Whether it was undone; such a change does not count as the latest."""
        self.kept = False
        """Whether it can still be undone."""
        self.bytes = 0
        self.seq: int | None = None
        self.error: OncewardError | None = None
        self.answered = False
        self._hooks: list[Callable[[Step], None]] = []

    def on_answer(self, hook: "Callable[[Step], None]") -> None:
        """Call `hook` when the server has responded; immediately if it has already."""
        if self.answered:
            hook(self)
        else:
            self._hooks.append(hook)

    def answer(self, seq: int | None = None, error: OncewardError | None = None) -> None:
        """Record that it is durable, with its sequence number if known, or has failed. The first
        call counts.
        """
        if self.answered:
            return
        self.seq, self.error, self.answered = seq, error, True
        if not self.kept:
            self.below = {}
        hooks, self._hooks = self._hooks, []
        for hook in hooks:
            hook(self)


def places_of(ops: Sequence[RoomOperation], effects: Sequence[Effect]) -> list[Place]:
    """The places that operations have changed, without items that were only renumbered."""
    named = {(does.list, getattr(does, "id", None)) for does in ops if isinstance(does, ListOp)}
    return [
        (kind, name, key)
        for kind, name, key, _, _ in effects
        if kind == "map" or key is None or (name, key) in named or (name, None) in named
    ]


def error_of(code: str, detail: str) -> OncewardError:
    """The exception for an error code of the server."""
    if find_kind(code) is not None:
        return class_of(code)(detail, code=code)
    return OncewardError(f"{detail} [{code[:100]}]", code="internal")
