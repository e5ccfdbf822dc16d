"""A local replica of a room: applies frames from the server and pending local changes.

It is pure: it uses no connection, time or randomness. The state is that of the server at the
position, with the client's unanswered steps on top. For a change of others, the own steps are
reverted, the change is applied, and they are applied again. All clients therefore have the same
state below their own steps, and the same state when no step is pending.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from onceward import limits
from onceward.api.room_changes import RoomOperation
from onceward.client.rooms.steps import Place, Step, error_of, places_of
from onceward.errors import BadInput, OncewardError
from onceward.rooms.frames import (
    Ack,
    Change,
    ClientFrame,
    Join,
    Joined,
    Ops,
    Refused,
    Snapshot,
)
from onceward.rooms.frames import Step as SentStep
from onceward.rooms.names import admit_step, encoded
from onceward.rooms.room import load_piece
from onceward.rooms.state import Cell, Effect, State

_WHY_LOST = "the room rejected it; the reason was lost with the connection"
StateFrame = Joined | Snapshot | Change | Ack | Refused

# The rest of the frame size is for the other fields of a join.
_JOIN_STEPS_BYTES = limits.FRAME_BYTES_MAX - 64_000


class Who(NamedTuple):
    """The author of a change: a user, and whether it was this client."""

    user: str
    mine: bool = False


class Changed(NamedTuple):
    """Visible changes of one author."""

    places: frozenset[Place]
    who: Who


class Replica:
    """The replica of one room. `client` is the unique name of this client as a sender of steps."""

    def __init__(self, room: str, client: str, *, create: bool = False) -> None:
        if type(create) is not bool:  # the server would close the connection with all its rooms
            raise BadInput(
                f"`create` must be true or false, not {create!r:.100}", code="wrong_type"
            )
        self.room = room
        self.create = create
        self.client = client
        self.user = ""
        self.epoch = ""
        self.seq = 0
        self.digest = ""
        """The digest that came with `seq`; only the server interprets it."""
        self.state = State()
        self.waiting: list[Step] = []
        """Unanswered own steps, in order."""
        self.open: Step | None = None
        """An open batch, on top of all other steps."""
        self.latest: dict[Place, Step | None] = {}
        """The step with the latest change of each place that this client has changed."""
        self.numbered: dict[str, int] = {}
        """How often lists were renumbered, as far as observed here."""
        self.live = False
        """Whether the state has reached the server's position on this connection."""
        self.out: list[ClientFrame] = []
        """Frames to send on this connection."""
        self.changed: list[Changed] = []
        """Changes to report to subscribers."""
        self._n = 0
        self._waiting_bytes = 0
        self._sent = 0
        self._known = 0
        """The highest number that may have been sent before this connection."""
        self._joined: Joined | None = None
        self._loading: State | None = None
        self._lowered = False
        """Whether the own steps are reverted at the moment."""
        self._before: dict[Place, Cell | None] = {}
        """The cells of possibly changed places at the last report."""
        self._whose: dict[Place, Who] = {}
        self._cause = Who("")
        self._answers: list[tuple[Step, int | None, OncewardError | None]] = []

    # Local changes.

    def change(self, ops: Sequence[RoomOperation]) -> Step:
        """Apply operations locally, and send them when possible.

        Raises `BadInput`, without a change, if they are invalid or conflict with the local state.
        """
        self.settle()
        step = self.open or Step([])
        admit_step(ops)
        if step is not self.open:
            self._admit_more(ops)
        effects = self.state.apply(ops)
        step.ops.extend(ops)
        if step.effects is not None:
            step.effects.extend(effects)
        self._note(step, ops, effects)
        for effect in effects:
            self._saw(effect, Who(self.user, True))
        if step is not self.open:
            self._send(step)
        self._tell()
        return step

    def begin(self) -> Step:
        """Open a batch: changes until `commit` or `abort` are one step."""
        if self.open is not None:
            raise BadInput(
                f"a batch of {len(self.open.ops)} changes is already open; commit or abort it first"
            )
        self.settle()
        self.open = Step([])
        return self.open

    def commit(self) -> Step:
        """Send the changes since `begin` as one step, which may be empty.

        Raises `BadInput`, and reverts all of them, if they are invalid or conflict with changes of
        others.
        """
        self.settle()
        step = self.open
        assert step is not None
        try:
            if step.effects is None:
                raise BadInput(
                    f"the batch of {len(step.ops)} changes conflicts with changes of "
                    "others; read the room again and repeat it",
                    code="not_expected",
                )
            if step.ops:
                admit_step(step.ops)
                self._admit_more(step.ops)
        except OncewardError as error:
            step.answer(error=error)
            self.abort()
            raise
        self.open = None
        if step.ops:
            self._send(step)
        else:
            step.answer(self.seq)
        return step

    def abort(self) -> None:
        """Revert the changes since `begin`."""
        self.settle()
        step = self.open
        assert step is not None
        self._lower(Who(self.user, True))
        self.open = None
        self.settle()
        step.answer(
            error=OncewardError(
                f"the batch of {len(step.ops)} changes was aborted; send them again if you "
                "still want them",
                code="bad_request",
            )
        )

    def _admit_more(self, ops: Sequence[RoomOperation]) -> None:
        if (
            len(self.waiting) >= limits.ROOM_WAITING_STEPS_MAX
            or self._waiting_bytes + len(encoded(ops)) > limits.ROOM_WAITING_BYTES_MAX
        ):
            raise OncewardError(
                f"{len(self.waiting)} changes already wait for a response; retry later",
                code="overloaded",
            )

    def _send(self, step: Step) -> None:
        self._n += 1
        step.n = self._n
        step.bytes = len(encoded(step.ops))
        self.waiting.append(step)
        self._waiting_bytes += step.bytes
        self._flush()

    def _flush(self) -> None:
        """Send unsent steps if the room is joined."""
        if self.live and self.waiting and self.waiting[-1].n > self._sent:
            for step in self.waiting:
                if step.n > self._sent:
                    self._sent = step.n
                    self.out.append(Ops(self.room, step.n, step.ops))

    # Connection.

    def join(self) -> Join:
        """The first frame on a new connection: the position, and the unanswered steps."""
        self.lost()
        self._known = max(self._known, self._sent)
        steps: list[SentStep] = []
        size = 0
        if self.epoch:
            for step in self.waiting:
                size += step.bytes + 32
                if size > _JOIN_STEPS_BYTES:
                    break  # the others are sent after the join
                steps.append(SentStep(step.n, step.ops))
        self._sent = steps[-1].n if steps else 0
        return Join(self.room, self.client, self.epoch, self.seq, steps, self.create, self.digest)

    def lost(self) -> None:
        """Handle the loss of the connection."""
        self.live = False
        self._joined = self._loading = None
        self.out.clear()

    def receive(self, frame: StateFrame) -> None:
        """Apply a state frame of the server; call `settle` after the last one for now.

        Raises `BadInput` for a frame that cannot follow; call `heal` then, and join again.
        """
        if self._joined is None and not isinstance(frame, Joined):
            return  # a frame of an earlier membership on this connection
        if isinstance(frame, Change):
            self._advance(frame)
            if frame.client == self.client and any(s.n == frame.n for s in self.waiting):
                self._acked(frame.n, frame.seq)
            else:
                self._others(frame.ops, Who(frame.by))
        elif isinstance(frame, Ack):
            if frame.seq <= self.seq:
                return  # a duplicate of an earlier connection
            self._advance(frame)
            self._acked(frame.n, frame.seq)
        elif isinstance(frame, Refused):
            if frame.code == "not_joined":
                return  # it crossed a `left`, and is sent again with the next join
            error = error_of(frame.code, frame.detail or "the room rejected it")
            self._refused([step for step in self.waiting if step.n == frame.n], error)
        elif isinstance(frame, Joined):
            self._joined = frame
            if frame.reset:
                self._loading = State()
            elif frame.epoch != self.epoch or frame.seq < self.seq:
                raise BadInput(
                    f"the server is at step {frame.seq} of the room, before step {self.seq} of "
                    "this replica; join the room again",
                    code="bad_request",
                )
        else:
            self._piece(frame)
        joined = self._joined
        if not self.live and joined and self._loading is None and self.seq >= joined.seq:
            self.live = True
            self._flush()

    def settle(self) -> None:
        """Apply reverted own steps again, and report responses."""
        if self._lowered:
            self._lowered = False
            for step in self._on_top():
                step.below = {}
                try:
                    step.effects = self.state.apply(step.ops)
                except BadInput:
                    step.effects = None
                else:
                    self._note(step, step.ops, step.effects)
            self._tell()
        answers, self._answers = self._answers, []
        for step, seq, error in answers:
            step.answer(seq, error)

    def heal(self) -> None:
        """Discard the position after an error, so that the next join gets a snapshot.

        The outcome of unanswered steps is unknown then.
        """
        self.epoch, self.seq, self.digest = "", 0, ""
        self.lost()
        self.drop(
            OncewardError(
                f"the local replica of the room was invalid, so {len(self.waiting)} changes may "
                "or may not have been applied; read the room again",
                code="outcome_unknown",
            )
        )

    def drop(self, error: OncewardError, most: int = limits.ROOM_NUMBER_MAX) -> None:
        """Drop unanswered steps up to a number; neither they nor their numbers are sent again."""
        self._refused([step for step in self.waiting if step.n <= most], error)
        self.settle()

    def _advance(self, frame: Change | Ack) -> None:
        if self._loading is not None or self._joined is None or frame.seq != self.seq + 1:
            raise BadInput(
                f"expected step {self.seq + 1} of the room, received {frame.seq}; join the room "
                "again",
                code="bad_request",
            )
        self.seq, self.digest = frame.seq, frame.digest

    def _piece(self, frame: Snapshot) -> None:
        if self._loading is None or self._joined is None:
            raise BadInput(
                f"received a snapshot of the room at {frame.seq}, which was not requested; join "
                "the room again",
                code="bad_request",
            )
        load_piece(self._loading, frame.maps, frame.lists)
        if frame.more:
            return
        joined, state = self._joined, self._loading
        self._lower(Who(""))
        for place in {*_places(self.state), *_places(state)}:
            self._before.setdefault(place, self.state.get(*place))
        self.state = state
        self.epoch, self.seq, self.digest = joined.epoch, joined.seq, joined.digest
        self._loading = None
        self.latest.clear()
        for step in [step for step in self.waiting if step.n <= joined.n]:
            self._answer([step], error=_fate(step, joined))
        if joined.reset == "forgotten":
            # Steps that are in this join for the first time were not applied: send them again.
            self._sent = self._known
            error = error_of("outcome_unknown", "the server has no record of this client")
            self.drop(error, self._known)
        elif joined.reset == "epoch":
            self.drop(error_of("room_deleted", "the room was deleted and created again"))

    # State.

    def _on_top(self) -> list[Step]:
        return [*self.waiting, self.open] if self.open is not None else list(self.waiting)

    def _lower(self, cause: Who) -> None:
        """Revert the own steps until `settle`, so that the state is the server's."""
        self._cause = cause
        if self._lowered:
            return
        self._lowered = True
        own = self._on_top()
        for step in own:
            for effect in step.effects or ():
                place = _place(effect)
                self._before.setdefault(place, self.state.get(*place))
        for step in reversed(own):
            if step.effects is not None:
                self.state.revert(step.effects)
                for place, below in step.below.items():
                    if below is None:
                        self.latest.pop(place, None)
                    else:
                        self.latest[place] = below

    def _others(self, ops: Sequence[RoomOperation], who: Who) -> None:
        self._lower(who)
        effects = self.state.apply(ops)
        for effect in effects:
            self._saw(effect, who)
        for place in self._changed(ops, effects):
            self.latest.pop(place, None)

    def _acked(self, n: int, seq: int) -> None:
        skipped = [step for step in self.waiting if step.n < n]
        if len(skipped) == len(self.waiting) or self.waiting[len(skipped)].n != n:
            raise BadInput(
                f"received a response for step {n}, which is not pending; join the room again",
                code="bad_request",
            )
        # A skipped step was rejected, and the response was lost.
        self._refused(skipped, error_of("bad_request", _WHY_LOST))
        step = self.waiting[0]
        if self._lowered:
            step.effects = self.state.apply(step.ops)
            step.below = {}
            self._note(step, step.ops, step.effects)
        elif step.effects is None:
            raise BadInput(
                f"the room applied step {n}, which conflicts with the local state; join the "
                "room again",
                code="bad_request",
            )
        # Otherwise it was applied directly on top of the server's state, so nothing changes.
        self._answer([step], seq)

    def _refused(self, steps: list[Step], error: OncewardError) -> None:
        if steps:
            self._lower(Who(self.user, True))
            self._answer(steps, error=error)

    def _answer(
        self, steps: list[Step], seq: int | None = None, error: OncewardError | None = None
    ) -> None:
        if len(steps) == 1 and self.waiting[0] is steps[0]:
            del self.waiting[0]
        else:
            gone = set(map(id, steps))
            self.waiting = [step for step in self.waiting if id(step) not in gone]
        self._waiting_bytes -= sum(step.bytes for step in steps)
        self._answers += [(step, seq, error) for step in steps]

    def _changed(self, ops: Sequence[RoomOperation], effects: Sequence[Effect]) -> list[Place]:
        """The places that operations have changed; counts renumbered lists."""
        places = places_of(ops, effects)
        if len(places) < len(effects):
            told = set(places)
            for name in {effect.name for effect in effects if _place(effect) not in told}:
                self.numbered[name] = self.numbered.get(name, 0) + 1
        return places

    def _note(self, step: Step, ops: Sequence[RoomOperation], effects: Sequence[Effect]) -> None:
        """Record a step as the latest at its places."""
        if not step.below:
            step.numbered = dict(self.numbered)
        for place in self._changed(ops, effects):
            step.below.setdefault(place, self.latest.get(place))
            self.latest[place] = step

    def _saw(self, effect: Effect, who: Who) -> None:
        place = _place(effect)
        self._before.setdefault(place, effect.old)
        self._whose[place] = who

    def _tell(self) -> None:
        """Report places that have changed since the last report."""
        found: dict[Who, set[Place]] = {}
        for place, cell in self._before.items():
            if self.state.get(*place) != cell:
                found.setdefault(self._whose.get(place, self._cause), set()).add(place)
        self.changed += [Changed(frozenset(places), who) for who, places in found.items()]
        self._before.clear()
        self._whose.clear()


def _fate(step: Step, joined: Joined) -> OncewardError | None:
    """The outcome of a step up to the highest applied number that is not in a replay."""
    if step.n in joined.skipped:
        return error_of("bad_request", _WHY_LOST)
    if step.n < joined.known:
        return error_of("outcome_unknown", "the server no longer has the outcome of this step")
    return None


def _place(effect: Effect) -> Place:
    return effect.kind, effect.name, effect.key


def _places(state: State) -> Iterable[Place]:
    for name, entries in state.maps.items():
        yield "map", name, None
        for key in entries:
            yield "map", name, key
    for name, items in state.lists.items():
        yield "list", name, None
        for id_ in items.cells:
            yield "list", name, id_
