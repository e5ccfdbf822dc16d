"""Structs of the frames of the rooms protocol, selected by the field `t`.

A connection begins with `hello`, and can be in several rooms. For each room the server sends,
after `joined`, exactly one frame for every sequence number, in order: `change` for the steps of
others, `ack` for one's own. So a client always knows its position: the epoch of the room, the last
sequence number it has seen, and the digest that came with it. The digest is of the whole log up to
there: by it the server notices a position of another history, as after a restore. An `ack` is sent
when the step is durable, not before.

A client numbers its steps 1, 2, 3 … for each room, and sends them in order. On a new connection
it joins with its position and with the steps that it has no answer to. Three cases, never a
fourth:

- `joined` with `reset` empty: all changes from the position on follow, one's own among them as
  `change` with one's `client` and `n`: such a one counts as its `ack`. What has a number above
  `n`, and was in the join, is applied behind that, and acknowledged as usual.
- `joined` with a `reset`, that says why: a snapshot follows, and counts instead of all the client
  had. What has a number from `known` up to `n` is in it, unless `skipped` names it; what has a
  lower number may be. `reset: "forgotten"` says that nobody knows
  whether the client's steps without an answer were applied: they are not applied now, and the
  client gives them up. So it does with `"epoch"`: the room is another one of the same name.
- `left`: the room cannot be joined, and the code says why.
"""

from typing import Any, Final, Literal

import msgspec

from onceward import limits
from onceward.api.room_changes import RoomOperation
from onceward.api.rooms import RoomMember
from onceward.errors import TABLE, BadInput, TooLarge, find_kind
from onceward.strict_json import decoder, parse_by

PROTOCOL: Final = "onceward.rooms.1"
"""The subprotocol of WebSocket. A token may be the second one, as `token.` and itself."""

Reset = Literal["", "new", "gap", "ahead", "diverged", "epoch", "forgotten"]


class Step(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Operations that take effect as one, with the number that their client gave them."""

    n: int
    ops: list[RoomOperation]


class Frame(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="t"):
    """The base of all frames."""


class Asking(Frame, frozen=True, forbid_unknown_fields=True):
    """The base of what clients send: what is not understood is refused, not ignored."""


# From clients.


class Hello(Asking, frozen=True, tag="hello"):
    """The first frame; it has the token, unless that came with the request."""

    token: str = ""


class Token(Asking, frozen=True, tag="token"):
    """A new token for this connection, of the same user."""

    token: str


class Ping(Asking, frozen=True, tag="ping"):
    """Answered by `pong`."""


class Join(Asking, frozen=True, tag="join"):
    """Be in a room. `client` names the sender of steps, the same one on later connections."""

    room: str
    client: str
    epoch: str = ""
    """With `seq` and `digest` the position; without, nothing of the room is known, and no steps are
    sent."""
    seq: int = 0
    steps: list[Step] = []
    """Those without an answer."""
    create: bool = False
    """Whether to make the room if there is none."""
    digest: str = ""
    """As it came with the last sequence number."""


class Leave(Asking, frozen=True, tag="leave"):
    room: str


class Ops(Asking, frozen=True, tag="ops"):
    """A step."""

    room: str
    n: int
    ops: list[RoomOperation]


class SetPresence(Asking, frozen=True, tag="presence.set"):
    """Set or renew one's own entry; it is the user of the token whose entry it is."""

    room: str
    name: str
    value: Any
    ttl_ms: int = limits.PRESENCE_MS


class RemovePresence(Asking, frozen=True, tag="presence.remove"):
    """Remove one's own entry."""

    room: str
    name: str


class Say(Asking, frozen=True, tag="say"):
    """Tell all others in the room; it is not kept."""

    room: str
    event: str
    value: Any = None


class Tell(Asking, frozen=True, tag="tell"):
    """Tell one member; it is not kept. Refused if there is no such member."""

    room: str
    to: str
    event: str
    value: Any = None


class Act(Asking, frozen=True, tag="act"):
    """Do something at a table: what can be done, and with which `body`, is as over HTTP. It is
    answered by `done` or `failed` with the same `n`, in the order of asking."""

    n: int
    do: str
    table: str = ""
    body: dict[str, Any] = {}


# From the server.


class Welcome(Frame, frozen=True, tag="welcome"):
    """The answer to `hello` and `token`: who one is, and until when."""

    user: str
    until_ms: int | None = None
    """When the token expires: a new one must have come by then."""
    beat_ms: int = 0
    """Who says nothing for longer than that is gone, and so is the server."""


class Pong(Frame, frozen=True, tag="pong"):
    pass


class Joined(Frame, frozen=True, tag="joined"):
    """One is in the room. What follows brings one to the position `seq`."""

    room: str
    epoch: str
    seq: int
    n: int
    """The highest number of this client's steps that is applied at `seq`."""
    me: str
    """One's own id as a member."""
    members: list[RoomMember]
    """All, oneself included; in a very large room the first of them, and oneself."""
    presences: dict[str, dict[str, Any]]
    """Of each name the entries, by user."""
    reset: Reset = ""
    known: int = 0
    """From which number on the room knows what became of this client's steps …"""
    skipped: tuple[int, ...] = ()
    """… and which of them, below `n`, were refused."""
    count: int = 0
    """How many members there are, if `members` does not have all of them."""
    digest: str = ""
    """Of the log up to `seq`."""


class Snapshot(Frame, frozen=True, tag="snapshot"):
    """The state of a room at `seq`, or a piece of it, while `more` is true."""

    room: str
    seq: int
    maps: dict[str, dict[str, Any]]
    lists: dict[str, list[tuple[str, str, Any]]]
    """Of each item its id, position and value, in order."""
    more: bool = False


class Change(Frame, frozen=True, tag="change"):
    """A step of someone: the user `by`, and the number `n` of `client`, if a client sent it."""

    room: str
    seq: int
    ops: list[RoomOperation]
    by: str = ""
    client: str = ""
    n: int = 0
    digest: str = ""
    """Of the log up to `seq`."""


class Ack(Frame, frozen=True, tag="ack"):
    """One's own step is durable, under this sequence number."""

    room: str
    n: int
    seq: int
    digest: str = ""
    """Of the log up to `seq`."""


class Refused(Frame, frozen=True, tag="refused"):
    """One's own step was not applied, and never will be."""

    room: str
    n: int
    code: str
    detail: str = ""


class PresenceChanged(Frame, frozen=True, tag="presence"):
    room: str
    name: str
    user: str
    value: Any


class PresenceGone(Frame, frozen=True, tag="gone"):
    room: str
    name: str
    user: str


class Came(Frame, frozen=True, tag="came"):
    """Another member has joined."""

    room: str
    id: str
    user: str


class Went(Frame, frozen=True, tag="went"):
    """Another member has left."""

    room: str
    id: str


class Crowd(Frame, frozen=True, tag="crowd"):
    """How many members there are in a very large room, of whom not all are told by name; without
    `count` they are again. Told now and then."""

    room: str
    count: int = 0


class Said(Frame, frozen=True, tag="said"):
    """What another member, or a server, says to all; `direct` if only to this one."""

    room: str
    event: str
    value: Any = None
    sender: str = ""
    by: str = ""
    direct: bool = False


class Left(Frame, frozen=True, tag="left"):
    """One is not in the room, or no longer; the connection and its other rooms go on. Where the
    code's `retry` is true, join again after a pause, as after a lost connection."""

    room: str
    code: str
    detail: str = ""


class Done(Frame, frozen=True, tag="done"):
    """What was to be done at a table is done, and durable."""

    n: int
    value: Any = None


class Failed(Frame, frozen=True, tag="failed"):
    """What was to be done at a table was not done."""

    n: int
    code: str
    detail: str = ""


class Error(Frame, frozen=True, tag="error"):
    """A frame had no effect. It does not tell of steps: `refused` and `left` do."""

    code: str
    detail: str = ""
    room: str = ""
    name: str = ""
    """Of the presence, if it was `presence.set` that was refused."""
    value: Any = None
    """That value, by which its sender knows which one it was."""


ClientFrame = (
    Hello | Token | Ping | Join | Leave | Ops | SetPresence | RemovePresence | Say | Tell | Act
)
ServerFrame = (
    Welcome
    | Pong
    | Joined
    | Snapshot
    | Change
    | Ack
    | Refused
    | PresenceChanged
    | PresenceGone
    | Came
    | Went
    | Crowd
    | Said
    | Left
    | Done
    | Failed
    | Error
)

encode = msgspec.json.Encoder().encode
_client_frame: msgspec.json.Decoder[ClientFrame] = decoder(ClientFrame)
_server_frame: msgspec.json.Decoder[ServerFrame] = msgspec.json.Decoder(ServerFrame)


def read_client(raw: bytes) -> ClientFrame:
    """A frame from a client. Raises `BadInput`: nobody knows what such a client means, so its
    connection is closed, with the code that this has."""
    if len(raw) > limits.FRAME_BYTES_MAX:
        raise TooLarge(
            f"a frame has at most {limits.FRAME_BYTES_MAX} bytes, not {len(raw)}",
            code="frame_too_large",
        )
    try:
        frame = parse_by(_client_frame, raw)
    except BadInput as error:
        if error.code == "wrong_type" and "`$.t`" in error.message:
            raise BadInput(error.message, code="unknown_frame") from error
        if error.code == "missing_member" and "`t`" in error.message:
            raise BadInput("a frame says in `t` which it is", code="unknown_frame") from error
        raise
    return frame


def read_server(raw: bytes | str) -> ServerFrame:
    """A frame from a server. Raises `BadInput`. Members that are not known are left out, so that
    servers can learn to say more."""
    try:
        return _server_frame.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"this is no frame of a server: {error}", code="not_json") from error


# What WebSocket itself closes with, and after which connecting again is right: going away, no
# code, abnormal, internal error, restart, try again later, bad gateway.
_CLOSES_PASSING = frozenset((1000, 1001, 1005, 1006, 1011, 1012, 1013, 1014))
_OURS_PASSING = frozenset(kind.close for kind in TABLE.values() if kind.retry)
_OURS_FINAL = frozenset(kind.close for kind in TABLE.values() if not kind.retry)


def reconnects(close: int, reason: str = "") -> bool:
    """Whether a client whose connection was closed like that connects again by itself. The
    reason is a code of the table of errors; if it is missing, the number must do."""
    if (kind := find_kind(reason)) is not None and kind.close == close:
        return kind.retry
    return close in _CLOSES_PASSING or close in _OURS_PASSING - _OURS_FINAL
