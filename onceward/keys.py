"""Keys: tuples of words and numbers as text that sorts like the tuples.

A record's key is a partition and a sort key, both made by `join`. Words are joined
by `#`; characters up to `$` are escaped as `$` and two hex digits, so that the
separator sorts before all content and a word before its own extensions. Numbers
are sixteen decimal digits. The order of encoded keys, compared as bytes (or code
points, which is the same), is the order of the tuples. Everything is readable text:
`sqlite3 app.db 'select * from record'` shows a person what is there.

The key space, by the first word of the partition:

=========== ============================== ============================================
partition   sort key                       what it holds
=========== ============================== ============================================
attempt#xx  attempt id                     the verdict of a commit whose answer may have
                                           been lost; xx spreads the load
config      schedule                       what was chosen when the database was created
config      format                         which layout of records the database has
config      server_key                     check values of the server keys in use
session     caller#id                      a session at the console, until it ends
apikey      digest                         an API key that was made while a server ran
node        name                           the heartbeat of a node
slot        slot                           which node owns the slot
due#slot    due_ms#id#…#kind               what waits for time; kind says what it is
ready#slot# rank#ready_ms#id               what waits for a worker of that queue; rank is the
queue                                      priority, and whether it has failed before
line#slot#  number                         what waits behind the head of its order key
queue#key
order#slot  queue#key                      the head of an order key
job#slot    id#job                         a job; its id ends with the slot
job#slot    id#lease                       until when a job is leased, if that was renewed
lock#slot   name#head                      a lock: its capacity, newest token, and counts
lock#slot   name#hold#token                who holds it
lock#slot   name#wait#number               who waits for it
ask#slot#id request                        a request for locks; its id ends with the slot
ask#slot    id                             until when it is leased, if that was renewed
fence       slot                           the highest token of locks that were forgotten
gate#xx     resource                       the highest token that something outside has seen
job#slot    id#steps                       the steps that a job's attempts have recorded
limit#xx    queue#key                      how many jobs of a limit key are past its gate
parked#     priority#number                what waits before the gate of its limit key
queue#key
permit#     number                         a job of a limited queue that is worked on
queue
rate        queue                          when the next job of a queue may be handed out
dead#queue  ended_ms#id                    a job that died, or is in doubt
queue       queue                          the settings of a queue
inbox#xx#   caller#key                     which job a dedupe key has led to
queue
timer#slot  caller#id                      a timer, and what it has come to
endpoint    caller#id                      where outward calls go, and their secrets
suspended   caller                         a caller whose timers and webhook calls wait
rooms       id                             a room in the list of all, with what it is searched by
room#id     info                           a room's settings
room#id     head                           its epoch, its sequence number, its snapshots, and how
                                           often its settings have changed
roomlog#    number                         steps of a room (id#epoch), up to that sequence number
roomsnap#   number#piece                   the state of a room (id#epoch) at that sequence number
tables      id                             a table in the list of all
table#id    info                           a table's policy, and what else was said about it
table#id    head                           who sits where, its lanes, and the game that is on
stand#t#e   user                           where someone is at a table (t: its id, e: its epoch)
alive#t#e   user                           when one who waits there gave the last sign of life
lane#t#e    lane#wait#number               who waits in a lane
lane#t#e    lane#block#number              which numbers of a block have gone
lane#t#e    lane#group#number              how many numbers have gone of each block of a group
rating#name user                           how well someone plays, by a ladder's name
ladder#name rank#user                      the same by rating, the best first
match#id    head                           a match as it stands
match#id    log#number                     what has happened in it, from its beginning on
playing     place                          the match that is on at a table, or wherever
hub         node                           where other nodes reach a node's rooms
u#partition sort key                       a record of the application, under its own key
clock       last                           the time that a node has noted last
probe       application                    when a node last found out whether it can commit
=========== ============================== ============================================

Each part that adds records adds its lines here.

A name (of a queue, lock, room, table, endpoint, timer or caller) may belong to a namespace. Then
the namespace is the first component of the name itself, before a separator that no name contains
(`qualified`); kind and slot stay in front of it. The default namespace adds nothing.
"""

import re
from typing import Any

from onceward.errors import BadInput
from onceward.limits import KEY_NUMBER_MAX

Key = tuple[str, str]
"""(partition, sort key)"""

USER = "u#"
"""The prefix of the partitions of applications. No internal partition begins with it."""

_ESCAPES = {code: f"${code:02x}" for code in range(0x25)}
_PLAIN = re.compile("[%-\ud7ff\ue000-\U0010ffff]*").fullmatch  # nothing to be escaped
_NAME = re.compile("[^\x00-\x1f\x7f\ud800-\udfff]+").fullmatch
_NAMESPACE_END = "\x1f"  # a control character, which no name contains


def join(*parts: str | int) -> str:
    """Encode a tuple of words and numbers; raises `BadInput` for what cannot be a key."""
    if not parts:
        raise BadInput("a key needs at least one part", code="bad_key")
    return "#".join(
        [part if type(part) is str and _PLAIN(part) else _encode(part) for part in parts]
    )


def split(text: str) -> tuple[str, ...]:
    """Decode what `join` made. Numbers come back as sixteen digits: `int()` them."""
    return tuple(_decode(part) for part in text.split("#"))


def kind_of(partition: str) -> str:
    """The first word of a partition: what kind of records it holds."""
    return partition.partition("#")[0]


def user_key(key: Key) -> Key:
    """An application's key as it is stored."""
    return USER + key[0], key[1]


def shown_key(key: Key) -> Key:
    """A stored key as a person or an application knows it."""
    return key[0].removeprefix(USER), key[1]


def number(value: int) -> str:
    """A number as a part of a key: sixteen digits, so that it sorts as text."""
    if not 0 <= value <= KEY_NUMBER_MAX:
        raise BadInput(
            f"a number in a key must be 0 to {KEY_NUMBER_MAX}, not {value}", code="bad_key"
        )
    return f"{value:016d}"


def qualified(namespace: str, name: str) -> str:
    """A name in a namespace, as one word of a key. In the default namespace: the name itself."""
    return f"{namespace}{_NAMESPACE_END}{name}" if namespace else name


def unqualified(text: str) -> tuple[str, str]:
    """The namespace and the name that `qualified` made a word of."""
    namespace, end, name = text.rpartition(_NAMESPACE_END)
    return (namespace, name) if end else ("", text)


def admit_name(name: Any, what: str, bytes_max: int) -> None:
    """Raise `BadInput` for anything but text of 1 to `bytes_max` bytes without control
    characters: `what` says whose name it is."""
    if type(name) is not str:
        raise BadInput(f"{what} is text, not {type(name).__name__}", code="bad_name")
    if name and _NAME(name) is None:
        raise BadInput(
            f"{what} may not contain control characters or lone surrogates: {name[:100]!a}",
            code="bad_name",
        )
    size_bytes = len(name) if name.isascii() else len(name.encode())
    if not 0 < size_bytes <= bytes_max:
        raise BadInput(f"{what} has 1 to {bytes_max} bytes, not {size_bytes}", code="bad_name")


def below(*parts: str | int) -> tuple[str, str]:
    """The range [start, end) of all keys that extend this tuple by further parts."""
    prefix = join(*parts)
    return prefix + "#", prefix + "$"


def after(sort: str) -> str:
    """The bound just behind a sort key or partition, to continue there: nothing comes between,
    since no engine takes keys with NUL in them. Right for all keys, also those not made here."""
    return sort + "\x01"


def _encode(part: str | int) -> str:
    if type(part) is int:
        return number(part)
    if not isinstance(part, str):
        raise BadInput(
            f"a key is made of text and whole numbers, not of {type(part).__name__}", code="bad_key"
        )
    if any("\ud800" <= char <= "\udfff" for char in part):
        raise BadInput("a key may not contain lone surrogates", code="bad_key")
    return part.translate(_ESCAPES)


def _decode(part: str) -> str:
    if "$" not in part:
        return part
    head, *rest = part.split("$")
    try:
        return head + "".join(chr(int(piece[:2], 16)) + piece[2:] for piece in rest)
    except ValueError:
        raise BadInput(f"{part!r} is not an encoded key", code="bad_key") from None
