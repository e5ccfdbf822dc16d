"""Structs of the frames of the rooms protocol, selected by the field `t`.

A connection begins with `hello`, and can join several rooms. After `joined` the server sends
exactly one frame per sequence number of a room, in order: `change` for steps of others, `ack` for
the client's own. A client therefore always has a position: the epoch of the room, the last sequence
number, and the digest that came with it. The digest covers the whole log up to there, so the
server detects a position of another history, as after a restore. An `ack` is sent when the step is
durable.

A client numbers its steps 1, 2, 3 … for each room, and sends them in order. On a new connection it
joins with its position and its unanswered steps. There are three cases:

- `joined` with an empty `reset`: all changes after the position follow. They include the client's
  own as `change` with its `client` and `n`, which count as `ack`. Unanswered steps with numbers
  above `n` are applied after that, and acknowledged as usual.
- `joined` with a `reset`, which is the reason: a snapshot follows and replaces the client's state.
  It includes steps with numbers from `known` to `n`, except those in `skipped`; it may include
  lower ones. With `reset: "forgotten"` it is unknown whether the unanswered steps were applied;
  they are not applied now, and the client drops them. The same holds for `"epoch"`: the room is
  another one of the same name.
- `left`: the room cannot be joined; the code is the reason.
"""

from typing import Any, Final, Literal

import msgspec

from onceward import limits
from onceward.api.room_changes import RoomOperation
from onceward.api.rooms import RoomMember
from onceward.errors import TABLE, BadInput, TooLarge, find_kind
from onceward.strict_json import decoder, parse_by

PROTOCOL: Final = "onceward.rooms.1"
"""The WebSocket subprotocol. The second one may be a token, prefixed with `token.`."""

Reset = Literal["", "new", "gap", "ahead", "diverged", "epoch", "forgotten"]


class Step(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Operations that take effect together, with the number from their client."""

    n: int
    ops: list[RoomOperation]


class Frame(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="t"):
    """The base of all frames."""


class Asking(Frame, frozen=True, forbid_unknown_fields=True):
    """The base of client frames. Unknown fields are rejected."""


# From clients.


class Hello(Asking, frozen=True, tag="hello"):
    """The first frame, with the token unless the request had it."""

    token: str = ""


class Token(Asking, frozen=True, tag="token"):
    """A new token for this connection, of the same user."""

    token: str


class Ping(Asking, frozen=True, tag="ping"):
    """Requests a `pong`."""


class Join(Asking, frozen=True, tag="join"):
    """Join a room. `client` names the sender of steps, and stays the same on later connections."""

    room: str
    client: str
    epoch: str = ""
    """With `seq` and `digest` the position. Without an epoch the client has no state and sends no
    steps.
    """
    seq: int = 0
    steps: list[Step] = []
    """The unanswered steps."""
    create: bool = False
    """Whether to create the room if it does not exist."""
    digest: str = ""
    """The digest that came with the last sequence number."""


class Leave(Asking, frozen=True, tag="leave"):
    room: str


class Ops(Asking, frozen=True, tag="ops"):
    """A step."""

    room: str
    n: int
    ops: list[RoomOperation]


class SetPresence(Asking, frozen=True, tag="presence.set"):
    """Set or renew the entry of the token's user."""

    room: str
    name: str
    value: Any
    ttl_ms: int = limits.PRESENCE_MS


class RemovePresence(Asking, frozen=True, tag="presence.remove"):
    """Remove the user's entry."""

    room: str
    name: str


class Say(Asking, frozen=True, tag="say"):
    """Send an event to all other members; it is not stored."""

    room: str
    event: str
    value: Any = None


class Tell(Asking, frozen=True, tag="tell"):
    """Send an event to one member; it is not stored. Rejected if the member does not exist."""

    room: str
    to: str
    event: str
    value: Any = None


class Act(Asking, frozen=True, tag="act"):
    """Act at a table. Actions and their `body` are those of the HTTP API.

    The response is `done` or `failed` with the same `n`, in the order of requests.
    """

    n: int
    do: str
    table: str = ""
    body: dict[str, Any] = {}


# From the server.


class Welcome(Frame, frozen=True, tag="welcome"):
    """The response to `hello` and `token`: the user and the expiry."""

    user: str
    until_ms: int | None = None
    """When the token expires; a new one must be sent before."""
    beat_ms: int = 0
    """A peer that is silent for longer than this is disconnected, on both sides."""


class Pong(Frame, frozen=True, tag="pong"):
    pass


class Joined(Frame, frozen=True, tag="joined"):
    """The client has joined. The following frames bring it to the position `seq`."""

    room: str
    epoch: str
    seq: int
    n: int
    """The highest number of this client's steps that is applied at `seq`."""
    me: str
    """The client's member id."""
    members: list[RoomMember]
    """All members; in a very large room the first ones, and the client itself."""
    presences: dict[str, dict[str, Any]]
    """The entries by name and user."""
    reset: Reset = ""
    known: int = 0
    """The room has the outcome of this client's steps from this number on."""
    skipped: tuple[int, ...] = ()
    """Those of them below `n` that were rejected."""
    count: int = 0
    """The number of members if `members` is incomplete."""
    digest: str = ""
    """The digest of the log up to `seq`."""


class Snapshot(Frame, frozen=True, tag="snapshot"):
    """The state of a room at `seq`, or a piece of it while `more` is true."""

    room: str
    seq: int
    maps: dict[str, dict[str, Any]]
    lists: dict[str, list[tuple[str, str, Any]]]
    """The id, position and value of each item, in order."""
    more: bool = False


class Change(Frame, frozen=True, tag="change"):
    """A step of the user `by`, with the number `n` of `client` if a client sent it."""

    room: str
    seq: int
    ops: list[RoomOperation]
    by: str = ""
    client: str = ""
    n: int = 0
    digest: str = ""
    """The digest of the log up to `seq`."""


class Ack(Frame, frozen=True, tag="ack"):
    """The client's step is durable, with this sequence number."""

    room: str
    n: int
    seq: int
    digest: str = ""
    """The digest of the log up to `seq`."""


class Refused(Frame, frozen=True, tag="refused"):
    """The client's step was rejected and will not be applied."""

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
    """The number of members of a very large room, where not all are listed by name.

    Sent at intervals. Without `count`, all are listed again.
    """

    room: str
    count: int = 0


class Said(Frame, frozen=True, tag="said"):
    """An event from another member or a server; `direct` if it is only for this member."""

    room: str
    event: str
    value: Any = None
    sender: str = ""
    by: str = ""
    direct: bool = False


class Left(Frame, frozen=True, tag="left"):
    """The client is not in the room. The connection and its other rooms continue.

    If the code's `retry` is true, join again after a pause, as after a lost connection.
    """

    room: str
    code: str
    detail: str = ""


class Done(Frame, frozen=True, tag="done"):
    """An act at a table is durable."""

    n: int
    value: Any = None


class Failed(Frame, frozen=True, tag="failed"):
    """An act at a table was rejected."""

    n: int
    code: str
    detail: str = ""


class Error(Frame, frozen=True, tag="error"):
    """A frame had no effect. Steps are reported by `refused` and `left` instead."""

    code: str
    detail: str = ""
    room: str = ""
    name: str = ""
    """The name of the presence if `presence.set` was rejected."""
    value: Any = None
    """The rejected value, by which the sender identifies the update."""


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
    """Decode a frame of a client. Raises `BadInput`; its code is the reason to close the
    connection.
    """
    if len(raw) > limits.FRAME_BYTES_MAX:
        raise TooLarge(
            f"a frame must have at most {limits.FRAME_BYTES_MAX} bytes, not {len(raw)}",
            code="frame_too_large",
        )
    try:
        frame = parse_by(_client_frame, raw)
    except BadInput as error:
        if error.code == "wrong_type" and "`$.t`" in error.message:
            raise BadInput(error.message, code="unknown_frame") from error
        if error.code == "missing_member" and "`t`" in error.message:
            raise BadInput(
                'a frame needs its type in `t`, as in {"t": "hello"}', code="unknown_frame"
            ) from error
        raise
    return frame


def read_server(raw: bytes | str) -> ServerFrame:
    """Decode a frame of a server. Raises `BadInput`.

    Unknown fields are ignored, so that newer servers can add some.
    """
    try:
        return _server_frame.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(
            f"invalid frame from the server: {error}; check that client and server have the "
            "same version",
            code="not_json",
        ) from error


# Close codes of WebSocket after which a client should reconnect: going away, no code, abnormal,
# internal error, restart, try again later, bad gateway.
_CLOSES_PASSING = frozenset((1000, 1001, 1005, 1006, 1011, 1012, 1013, 1014))
_OURS_PASSING = frozenset(kind.close for kind in TABLE.values() if kind.retry)
_OURS_FINAL = frozenset(kind.close for kind in TABLE.values() if not kind.retry)


def reconnects(close: int, reason: str = "") -> bool:
    """Whether a client reconnects automatically after this close code and reason.

    The reason is an error code of the table; without it only the number counts.
    """
    if (kind := find_kind(reason)) is not None and kind.close == close:
        return kind.retry
    return close in _CLOSES_PASSING or close in _OURS_PASSING - _OURS_FINAL
