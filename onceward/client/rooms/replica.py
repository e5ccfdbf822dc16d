"""A local replica of a room: applies frames from the server and pending local changes.

Pure: it knows no connection, no time and no chance. The state is what the server has told up to
the position, with one's own steps that have no answer yet on top. When a change of others comes,
the own steps are taken back, the change is applied, and they are applied again; so everyone has
the same state below the own steps, and the same state at all when no step waits.
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

_WHY_LOST = "the room refused it; why was lost with the connection"
StateFrame = Joined | Snapshot | Change | Ack | Refused

# What a join brings along besides steps has room in what is left of a frame.
_JOIN_STEPS_BYTES = limits.FRAME_BYTES_MAX - 64_000


class Who(NamedTuple):
    """Who has changed something: a user, and whether it was done here."""

    user: str
    mine: bool = False


class Changed(NamedTuple):
    """Something that a person sees has changed."""

    places: frozenset[Place]
    who: Who


class Replica:
    """The copy of one room. `client` is the name under which steps are sent: nobody else has it."""

    def __init__(self, room: str, client: str, *, create: bool = False) -> None:
        if type(create) is not bool:  # the server would end the connection, with all its rooms
            raise BadInput(f"`create` is true or false, not {create!r:.100}", code="wrong_type")
        self.room = room
        self.create = create
        self.client = client
        self.user = ""
        self.epoch = ""
        self.seq = 0
        self.digest = ""
        """As it came with `seq`; only the server knows what it means."""
        self.state = State()
        self.waiting: list[Step] = []
        """Own steps without an answer, in order."""
        self.open: Step | None = None
        """A batch that is being made; it is on top of all."""
        self.latest: dict[Place, Step | None] = {}
        """Whose change is the latest, where it is one of this client's."""
        self.numbered: dict[str, int] = {}
        """How often lists were numbered anew, as far as it was seen here."""
        self.live = False
        """Whether all up to the server's position has come, on this connection."""
        self.out: list[ClientFrame] = []
        """What is to be sent, on this connection."""
        self.changed: list[Changed] = []
        """What a person is to be told."""
        self._n = 0
        self._waiting_bytes = 0
        self._sent = 0
        self._known = 0
        """The highest number that the server may have heard of before this connection."""
        self._joined: Joined | None = None
        self._loading: State | None = None
        self._lowered = False
        """Whether the own steps are taken back for now."""
        self._before: dict[Place, Cell | None] = {}
        """What was seen where something may have changed since, and by whom it was."""
        self._whose: dict[Place, Who] = {}
        self._cause = Who("")
        self._answers: list[tuple[Step, int | None, OncewardError | None]] = []

    # What happens here.

    def change(self, ops: Sequence[RoomOperation]) -> Step:
        """Apply operations at once, and send them when that is possible. Raises `BadInput` if
        they cannot be a step, or are refused as things look from here; nothing changes then."""
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
        """Begin a batch: what is changed until `commit` or `abort` is one step."""
        if self.open is not None:
            raise BadInput("a batch is being made already: they cannot be in each other")
        self.settle()
        self.open = Step([])
        return self.open

    def commit(self) -> Step:
        """Send what was done since `begin` as one step; it may be nothing. Raises `BadInput`,
        and nothing of it stays, if it cannot be one, or does not fit after what others did."""
        self.settle()
        step = self.open
        assert step is not None
        try:
            if step.effects is None:
                raise BadInput("what others did does not go with the batch", code="not_expected")
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
        """Undo what was done since `begin`."""
        self.settle()
        step = self.open
        assert step is not None
        self._lower(Who(self.user, True))
        self.open = None
        self.settle()
        step.answer(error=OncewardError("the batch was given up", code="bad_request"))

    def _admit_more(self, ops: Sequence[RoomOperation]) -> None:
        if (
            len(self.waiting) >= limits.ROOM_WAITING_STEPS_MAX
            or self._waiting_bytes + len(encoded(ops)) > limits.ROOM_WAITING_BYTES_MAX
        ):
            raise OncewardError(
                "too many changes wait for an answer of the server: try again later",
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
        """Send the steps that are not under way yet, if the room is joined."""
        if self.live and self.waiting and self.waiting[-1].n > self._sent:
            for step in self.waiting:
                if step.n > self._sent:
                    self._sent = step.n
                    self.out.append(Ops(self.room, step.n, step.ops))

    # What the connection does.

    def join(self) -> Join:
        """What to send first on a new connection: the position, and the steps without answer."""
        self.lost()
        self._known = max(self._known, self._sent)
        steps: list[SentStep] = []
        size = 0
        if self.epoch:
            for step in self.waiting:
                size += step.bytes + 32
                if size > _JOIN_STEPS_BYTES:
                    break  # they are sent when it is joined
                steps.append(SentStep(step.n, step.ops))
        self._sent = steps[-1].n if steps else 0
        return Join(self.room, self.client, self.epoch, self.seq, steps, self.create, self.digest)

    def lost(self) -> None:
        """The connection is gone."""
        self.live = False
        self._joined = self._loading = None
        self.out.clear()

    def receive(self, frame: StateFrame) -> None:
        """Take what the server says of the state; `settle` when there is no more for now. Raises
        `BadInput` for what cannot follow: then `heal`, and join again."""
        if self._joined is None and not isinstance(frame, Joined):
            return  # one was in the room before over this connection, and that was under way
        if isinstance(frame, Change):
            self._advance(frame)
            if frame.client == self.client and any(s.n == frame.n for s in self.waiting):
                self._acked(frame.n, frame.seq)
            else:
                self._others(frame.ops, Who(frame.by))
        elif isinstance(frame, Ack):
            if frame.seq <= self.seq:
                return  # it came twice, over an old connection too, and was told of already
            self._advance(frame)
            self._acked(frame.n, frame.seq)
        elif isinstance(frame, Refused):
            if frame.code == "not_joined":
                return  # it crossed a `left` on its way, and is sent again with the next join
            error = error_of(frame.code, frame.detail or "the room refused it")
            self._refused([step for step in self.waiting if step.n == frame.n], error)
        elif isinstance(frame, Joined):
            self._joined = frame
            if frame.reset:
                self._loading = State()
            elif frame.epoch != self.epoch or frame.seq < self.seq:
                raise BadInput("the room is not at a later position", code="bad_request")
        else:
            self._piece(frame)
        joined = self._joined
        if not self.live and joined and self._loading is None and self.seq >= joined.seq:
            self.live = True
            self._flush()

    def settle(self) -> None:
        """Apply the own steps again that are not applied, and tell what was answered."""
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
        """Forget the position, because something is wrong: the next join gets a snapshot. Nobody
        knows then whether steps without answer were taken."""
        self.epoch, self.seq, self.digest = "", 0, ""
        self.lost()
        self.drop(OncewardError("the copy of the room was damaged", code="outcome_unknown"))

    def drop(self, error: OncewardError, most: int = limits.ROOM_NUMBER_MAX) -> None:
        """Give up the steps without answer, up to a number: they are not sent again, nor are their
        numbers."""
        self._refused([step for step in self.waiting if step.n <= most], error)
        self.settle()

    def _advance(self, frame: Change | Ack) -> None:
        if self._loading is not None or self._joined is None or frame.seq != self.seq + 1:
            raise BadInput(
                f"the room is at {self.seq} here, and {frame.seq} came", code="bad_request"
            )
        self.seq, self.digest = frame.seq, frame.digest

    def _piece(self, frame: Snapshot) -> None:
        if self._loading is None or self._joined is None:
            raise BadInput("a snapshot came that was not announced", code="bad_request")
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
            # What goes with this join for the first time was not taken: it is sent again.
            self._sent = self._known
            error = error_of("outcome_unknown", "the server has forgotten this client")
            self.drop(error, self._known)
        elif joined.reset == "epoch":
            self.drop(error_of("room_deleted", "the room was deleted, and made again"))

    # How the state is kept.

    def _on_top(self) -> list[Step]:
        return [*self.waiting, self.open] if self.open is not None else list(self.waiting)

    def _lower(self, cause: Who) -> None:
        """Take the own steps back, until `settle`: the state is what the server has told."""
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
            raise BadInput(f"an answer came for {n}, which does not wait", code="bad_request")
        # A step that was skipped was refused, and the answer was lost.
        self._refused(skipped, error_of("bad_request", _WHY_LOST))
        step = self.waiting[0]
        if self._lowered:
            step.effects = self.state.apply(step.ops)
            step.below = {}
            self._note(step, step.ops, step.effects)
        elif step.effects is None:
            raise BadInput(f"the room took {n}, which does not fit here", code="bad_request")
        # Else it was applied right on top of what the server has told: so nothing changes.
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
        """Where operations have changed something; lists that they number anew are counted."""
        places = places_of(ops, effects)
        if len(places) < len(effects):
            told = set(places)
            for name in {effect.name for effect in effects if _place(effect) not in told}:
                self.numbered[name] = self.numbered.get(name, 0) + 1
        return places

    def _note(self, step: Step, ops: Sequence[RoomOperation], effects: Sequence[Effect]) -> None:
        """Its changes are the latest now."""
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
        """Note what looks other than when it was last told."""
        found: dict[Who, set[Place]] = {}
        for place, cell in self._before.items():
            if self.state.get(*place) != cell:
                found.setdefault(self._whose.get(place, self._cause), set()).add(place)
        self.changed += [Changed(frozenset(places), who) for who, places in found.items()]
        self._before.clear()
        self._whose.clear()


def _fate(step: Step, joined: Joined) -> OncewardError | None:
    """What became of a step that is not above the highest one taken, and not in a replay."""
    if step.n in joined.skipped:
        return error_of("bad_request", _WHY_LOST)
    if step.n < joined.known:
        return error_of("outcome_unknown", "it was taken or refused too long ago to tell")
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
