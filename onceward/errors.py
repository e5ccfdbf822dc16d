"""The table of all user-visible errors, with one base class.

`TABLE` maps a stable code to its HTTP status, its WebSocket close code, the exit
code of the command line and whether trying again can help. Codes never change
their meaning; messages may. Applications add codes of their own with `register_error`.
"""

import re
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Code:
    """What one error code means to each kind of caller."""

    status: int
    """HTTP status."""
    close: int
    """WebSocket close code (4000 to 4999 are ours)."""
    exit: int
    """Exit code of the command line."""
    retry: bool
    """Whether the same call may succeed later, unchanged."""
    title: str


TABLE: dict[str, Code] = {
    # The caller's mistake: the same call fails again.
    "bad_request": Code(400, 4400, 2, False, "The request is malformed"),
    "bad_key": Code(422, 4422, 2, False, "A key is empty, too long or not valid text"),
    "bad_value": Code(422, 4422, 2, False, "A value cannot be stored as JSON"),
    "value_too_large": Code(413, 4413, 2, False, "A value is larger than a record may be"),
    "commit_too_large": Code(413, 4413, 2, False, "A commit has too many writes or bytes"),
    "bad_engine_url": Code(500, 4500, 2, False, "The engine URL is not understood"),
    "no_such_job": Code(404, 4404, 2, False, "There is no such job"),
    "no_such_timer": Code(404, 4404, 2, False, "There is no such timer"),
    "bad_timer": Code(422, 4422, 2, False, "There can be no such timer"),
    "bad_endpoint": Code(422, 4422, 2, False, "There can be no such endpoint"),
    "no_such_endpoint": Code(404, 4404, 2, False, "There is no such endpoint"),
    "already_ended": Code(409, 4409, 2, False, "It has ended, or is being worked on"),
    "not_failed": Code(409, 4409, 2, False, "The job has not failed"),
    "missing_key": Code(422, 4422, 2, False, "The message has no idempotency key"),
    "key_reused": Code(422, 4422, 2, False, "The same key came with another body before"),
    "stale_token": Code(409, 4409, 2, False, "The attempt is over: another one may run"),
    "lock_lost": Code(409, 4409, 2, False, "The lock is not held any more"),
    "lock_capacity": Code(409, 4409, 2, False, "The lock is in use with another capacity"),
    # A request over HTTP that cannot be meant.
    "not_json": Code(400, 4400, 2, False, "The body is not JSON"),
    "not_text": Code(400, 4400, 2, False, "The text is not valid Unicode"),
    "not_a_number": Code(400, 4400, 2, False, "A number is NaN, infinite or too large"),
    "duplicate_member": Code(400, 4400, 2, False, "A member is there twice"),
    "too_deep": Code(400, 4400, 2, False, "The body is nested too deeply"),
    "wrong_type": Code(422, 4422, 2, False, "A member has the wrong type or value"),
    "unknown_member": Code(422, 4422, 2, False, "A member is not known"),
    "missing_member": Code(422, 4422, 2, False, "A member is missing"),
    "bad_parameter": Code(422, 4422, 2, False, "A parameter of the address is not valid"),
    "bad_name": Code(422, 4422, 2, False, "A name is empty, too long or has other characters"),
    "bad_header": Code(400, 4400, 2, False, "A header is there twice, or contradicts another"),
    "head_too_large": Code(431, 4431, 2, False, "The head of the request is too large"),
    "too_slow": Code(408, 4408, 75, True, "The request did not come in time"),
    "body_too_large": Code(413, 4413, 2, False, "The body is larger than a request may be"),
    "not_found": Code(404, 4404, 2, False, "There is nothing at this address"),
    "method_not_allowed": Code(405, 4405, 2, False, "The address does not take this method"),
    "not_implemented": Code(501, 4501, 2, False, "The server does not implement this"),
    "upgrade_required": Code(426, 4426, 2, False, "The address speaks WebSocket"),
    "not_this_type": Code(415, 4415, 2, False, "The body has another type than it must have"),
    "no_such_lock": Code(404, 4404, 2, False, "The lock was not used lately"),
    "no_credentials": Code(401, 4401, 77, False, "The request has no valid credentials"),
    "wrong_host": Code(421, 4421, 77, False, "The server does not answer at this host name"),
    "no_such_key": Code(404, 4404, 2, False, "There is no such API key"),
    "no_such_session": Code(404, 4404, 2, False, "There is no such session"),
    "not_allowed": Code(403, 4403, 77, False, "The credentials do not allow this"),
    "went_away": Code(499, 4499, 75, True, "The caller has gone"),
    "internal": Code(500, 4500, 70, False, "The server has a bug"),
    "bad_settings": Code(500, 4500, 78, False, "The settings cannot be used"),
    "no_server_key": Code(500, 4500, 78, False, "There is no server key"),
    "wrong_server_key": Code(500, 4500, 78, False, "The database has another server key"),
    "secret_unreadable": Code(409, 4409, 2, False, "The secret needs another server key"),
    # Rooms. Where `retry` is true, a client joins or connects again by itself.
    "unknown_frame": Code(400, 4400, 2, False, "There is no frame of this type"),
    "frame_too_large": Code(413, 4413, 2, False, "The frame is larger than frames may be"),
    "no_such_room": Code(404, 4404, 2, False, "There is no such room"),
    "no_such_member": Code(404, 4404, 2, False, "There is no such member of the room"),
    "room_exists": Code(409, 4409, 2, False, "There is a room with this name"),
    "room_deleted": Code(410, 4410, 2, False, "The room was deleted"),
    "room_full": Code(409, 4409, 75, True, "The room has as many users or connections as it may"),
    "too_many_rooms": Code(409, 4409, 2, False, "There are as many rooms as there may be"),
    "room_moved": Code(503, 4503, 75, True, "The room is served by another node now"),
    "room_too_large": Code(413, 4413, 2, False, "The room would hold more than rooms may"),
    "not_joined": Code(409, 4409, 2, False, "The connection has not joined the room"),
    "not_expected": Code(409, 4409, 2, False, "The value is not the one that was expected"),
    "not_countable": Code(409, 4409, 2, False, "What is there is not a number to add to"),
    "bad_shape": Code(422, 4422, 2, False, "The value does not fit the schema"),
    "bad_schema": Code(422, 4422, 2, False, "The schema is not one that rooms know"),
    "history_gone": Code(410, 4410, 2, False, "The room's history does not reach there"),
    "slow_reader": Code(408, 4408, 75, True, "The reader does not keep up"),
    "token_expired": Code(401, 4401, 77, False, "The token has expired: connect with a new one"),
    "origin_refused": Code(403, 4403, 77, False, "Pages of this origin may not connect"),
    # Tables, and games at them.
    "no_such_table": Code(404, 4404, 2, False, "There is no such table"),
    "table_exists": Code(409, 4409, 2, False, "There is a table with this name"),
    "table_closed": Code(410, 4410, 2, False, "The table is closed"),
    "table_paused": Code(409, 4409, 75, True, "The table is paused"),
    "table_full": Code(409, 4409, 75, True, "As many wait or watch there as may"),
    "bad_policy": Code(422, 4422, 2, False, "There can be no table with this policy"),
    "not_seated": Code(409, 4409, 2, False, "One has to sit at the table for that"),
    "no_game": Code(409, 4409, 2, False, "No game is on"),
    "other_game": Code(409, 4409, 2, False, "Another game is on than the one that is meant"),
    "not_your_turn": Code(409, 4409, 2, False, "The game waits for someone else"),
    "bad_move": Code(422, 4422, 2, False, "This is no legal move"),
    "no_such_match": Code(404, 4404, 2, False, "There is no such match"),
    "no_such_game": Code(404, 4404, 2, False, "No game of this name is known here"),
    "stale_move": Code(409, 4409, 2, False, "The game has gone on since"),
    "out_of_time": Code(409, 4409, 2, False, "The time for the move is over"),
    "match_over": Code(409, 4409, 2, False, "The game is over"),
    "match_on": Code(409, 4409, 2, False, "The game is still on"),
    # Endpoints that are called, and the calls.
    "bad_url": Code(422, 4422, 2, False, "The URL is not one that can be called"),
    "bad_secret": Code(422, 4422, 2, False, "The secret is not one of webhooks"),
    "address_refused": Code(422, 4422, 2, False, "The address may not be called from here"),
    "unreachable": Code(502, 4502, 75, True, "The endpoint gave no answer"),
    # What handlers say of their own work.
    "retry": Code(503, 4503, 75, True, "The handler asks for another attempt"),
    "failed": Code(500, 4500, 70, False, "The handler has given the job up"),
    "not_done": Code(503, 4503, 75, True, "A step has surely done nothing"),
    "in_doubt": Code(500, 4500, 70, False, "A step may or may not have been done"),
    # Contention: nothing was changed, and trying again is right.
    "conflict": Code(409, 4409, 75, True, "Something read has changed meanwhile"),
    "contention": Code(503, 4503, 75, True, "Too many conflicts in a row"),
    "lock_held": Code(423, 4423, 75, True, "The lock is held, and was not free in time"),
    "rate_limited": Code(429, 4429, 75, True, "The caller asks more often than it may"),
    "queue_full": Code(429, 4429, 75, True, "The queue holds as many jobs as it may"),
    "too_many_waiters": Code(429, 4429, 75, True, "Too many wait for the lock already"),
    # The outcome is not known: it may or may not have been applied.
    "outcome_unknown": Code(503, 4503, 75, True, "The outcome of a commit is not known"),
    "overloaded": Code(503, 4503, 75, True, "The server has too much to do"),
    "too_many_connections": Code(503, 4503, 75, True, "The server has too many connections"),
    "engine_stopped": Code(503, 4503, 74, False, "Storage failed; the node must be restarted"),
    "engine_closed": Code(503, 4503, 75, True, "The engine is closed"),
    "node_stopped": Code(503, 4503, 75, True, "The node is stopping: ask another one"),
    "engine_unreachable": Code(503, 4503, 75, True, "The engine cannot be reached"),
    # Storage that cannot be opened or written. Each has an exit code of its own.
    "storage_full": Code(507, 4507, 73, True, "No space is left for data"),
    "database_in_use": Code(503, 4503, 65, True, "Another process owns the database"),
    "database_newer": Code(500, 4500, 66, False, "A newer version wrote the database"),
    "unsupported_format": Code(500, 4500, 64, False, "Another version wrote the database"),
    "not_a_database": Code(500, 4500, 67, False, "The file is not an Onceward database"),
    "is_a_directory": Code(500, 4500, 68, False, "The path is a directory"),
    "read_only": Code(500, 4500, 69, False, "The database may not be written"),
    "no_such_file": Code(404, 4404, 70, False, "There is no such file"),
    "file_exists": Code(409, 4409, 71, False, "The target exists already"),
    "no_such_database": Code(404, 4404, 76, False, "The server has no such database"),
    "access_denied": Code(500, 4500, 77, False, "The database refuses the user"),
    "journal_missing": Code(500, 4500, 72, False, "The journal of the database is missing"),
    "damaged": Code(500, 4500, 72, False, "The database is damaged"),
    "storage_failed": Code(500, 4500, 74, False, "The storage answered with an error"),
}


_registered: dict[str, Code] = {}
_OWN = re.compile("[a-z][a-z0-9]*(_[a-z0-9]+)+").fullmatch


def register_error(code: str, *, status: int, title: str, retry: bool = False) -> str:
    """Add an error code of an application, and return it. Call it when a module is imported.

    Idempotent: the same code with the same meaning may be registered again. A Python client knows
    the code if it registers it too.

    Args:
        code: lower-case words joined by `_`. Begin with the name of the application, so that the
            code differs from those of Onceward and of other applications: `credit_bad_envelope`.
        status: HTTP status, 400 to 599. WebSocket connections close with 4000 more.
        title: what the code means, in a few words, without a full stop.
        retry: whether the same call may succeed later, unchanged.

    Raises:
        BadInput: the code is not valid, or has another meaning already.
    """
    if not _OWN(code):
        raise BadInput(f"{code!r} is not an error code; use a form like 'shop_sold_out'")
    if not 400 <= status <= 599:
        raise BadInput(f"the status of {code!r} is 400 to 599, not {status}")
    exit_ = 75 if retry else 2 if status < 500 else 70
    kind = Code(status, 4000 + status, exit_, retry, title)
    if (known := find_kind(code)) is not None and (code in TABLE or known != kind):
        raise BadInput(f"the error code {code!r} has another meaning already: {known.title!r}")
    _registered[code] = kind
    return code


def find_kind(code: str) -> Code | None:
    """The meaning of a code of the table or of an application; None if it is not known."""
    return TABLE.get(code) or _registered.get(code)


class OncewardError(Exception):
    """The base of every error raised on purpose.

    `code` is a key of `TABLE`, or registered by an application; `message` says what happened and
    what to do, in one or two sentences for a person; `details` are facts for a program.
    """

    default_code: ClassVar[str] = "bad_request"

    def __init__(self, message: str, *, code: str | None = None, **details: object) -> None:
        self.code = code or self.default_code
        kind = find_kind(self.code)
        if kind is None:
            raise KeyError(self.code)  # neither ours nor registered: a bug of the caller
        self.kind = kind
        # Whoever hands on another error, as in `Fail(error)`, means what that says.
        self.message = message if type(message) is str else str(message)
        self.details = details
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"


class BadInput(OncewardError):
    """The caller's mistake; nothing was changed."""


class TooLarge(BadInput):
    """A commit over the limits; nothing was changed."""

    default_code = "commit_too_large"


class NoSuchJob(BadInput):
    """There is no job of that id, or it is gone."""

    default_code = "no_such_job"


class NoSuchTimer(BadInput):
    """There is no timer with this id, or it is not this caller's."""

    default_code = "no_such_timer"


class NoSuchEndpoint(BadInput):
    """There is no endpoint with this id, or it is not this caller's."""

    default_code = "no_such_endpoint"


class SecretUnreadable(BadInput):
    """A stored secret is encrypted with a server key that is not here, or was tampered with."""

    default_code = "secret_unreadable"


class NoSuchRoom(BadInput):
    """There is no room with this id, or it was deleted."""

    default_code = "no_such_room"


class NoSuchTable(BadInput):
    """There is no table with this id, or it was closed long ago."""

    default_code = "no_such_table"


class NoSuchMatch(BadInput):
    """There is no match with this id, or it was long ago."""

    default_code = "no_such_match"


class HistoryGone(BadInput):
    """A room's log does not reach back to a sequence number, or has not come to it yet."""

    default_code = "history_gone"


class AlreadyEnded(BadInput):
    """It is too late for that: the job has ended, or is just being worked on."""

    default_code = "already_ended"


class NotFailed(BadInput):
    """Only a job that has died can be redriven or settled."""

    default_code = "not_failed"


class KeyReused(BadInput):
    """Another body came under a key that is known; nothing was changed."""

    default_code = "key_reused"


class StaleToken(BadInput):
    """This attempt at a job is over, by its lease or its end; nothing was changed."""

    default_code = "stale_token"


class LockLost(BadInput):
    """The lock is not held any more, by its lease or its release; nothing was changed."""

    default_code = "lock_lost"


class LockHeld(OncewardError):
    """Others hold the lock, and it was not free in time; nothing was changed."""

    default_code = "lock_held"


class QueueFull(OncewardError):
    """The queue holds as many unfinished jobs as its `depth_max` allows; nothing was changed."""

    default_code = "queue_full"


class TooManyWaiters(OncewardError):
    """So many wait for the lock already that no more may; nothing was changed."""

    default_code = "too_many_waiters"


class AddressRefused(BadInput):
    """A URL leads to where nobody may be sent from here; nothing was sent."""

    default_code = "address_refused"


class Unreachable(OncewardError):
    """An endpoint was called, and no answer came. The message says why, for a person.

    `sent` says how often the request was sent, in part at least: if it is not 0, the endpoint
    may have acted on it. `ours` says that the reason is with us, and nothing of the endpoint.
    """

    default_code = "unreachable"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        sent: int = 0,
        took_s: float = 0.0,
        ours: bool = False,
        **details: object,
    ) -> None:
        super().__init__(message, code=code, **details)
        self.sent = sent
        self.took_s = took_s
        self.ours = ours


class Retry(OncewardError):
    """Raised by a handler: this attempt failed, and the next one is to be at a time it names.

    That is just then, by `after_s` or `at_ms`; or with `not_before_s`, as when a server says when
    it may be asked again, after the pause of the queue, but no sooner than in so many seconds.
    """

    default_code = "retry"

    def __init__(
        self,
        message: str = "",
        *,
        after_s: float | None = None,
        at_ms: int | None = None,
        not_before_s: float | None = None,
    ) -> None:
        super().__init__(message or "the handler asked for another attempt")
        self.after_s = after_s
        self.at_ms = at_ms
        self.not_before_s = not_before_s


class Fail(OncewardError):
    """Raised by a handler: the job has failed for good, whatever attempts are left."""

    default_code = "failed"


class NotDone(OncewardError):
    """Raised by a step that is to be done at most once: it has surely done nothing. It may name
    the time of the next attempt, as `Retry` does."""

    default_code = "not_done"

    def __init__(
        self, message: str = "", *, after_s: float | None = None, not_before_s: float | None = None
    ) -> None:
        super().__init__(message or "nothing was done")
        self.after_s = after_s
        self.not_before_s = not_before_s


class InDoubt(OncewardError):
    """A step that is to be done at most once may or may not have been done."""

    default_code = "in_doubt"


class Conflict(OncewardError):
    """An expectation of a commit did not hold; nothing was changed."""

    default_code = "conflict"


class Contention(OncewardError):
    """A transaction met too many conflicts in a row; nothing was changed."""

    default_code = "contention"


class OutcomeUnknown(OncewardError):
    """A commit's answer was lost: it may or may not have been, or yet be, applied."""

    default_code = "outcome_unknown"


class Unavailable(OncewardError):
    """The engine could not be used; nothing was changed by this call."""

    default_code = "engine_unreachable"


class Damaged(Unavailable):
    """Stored data did not verify; nothing was changed by this call."""

    default_code = "damaged"


class EngineStopped(OncewardError):
    """Storage failed under the engine; what was in flight may or may not be there.

    The node must stop: opening the database again finds out what is there.
    """

    default_code = "engine_stopped"


class StorageFull(Unavailable):
    """No space for more data; this commit was not applied, reads go on."""

    default_code = "storage_full"


class CannotOpen(OncewardError):
    """A database cannot be opened; the code says why, the message what to do."""

    default_code = "not_a_database"


PASSING = (Contention, OutcomeUnknown, Unavailable)
"""What a process that runs on waits out: nothing says that it will be so the next time."""


def class_of(code: str) -> type[OncewardError]:
    """The class of a code: clients raise the same classes as the package."""
    if code in _CLASSES:
        return _CLASSES[code]
    kind = find_kind(code)
    assert kind is not None, code
    if kind.retry:
        return Unavailable
    return BadInput if kind.status < 500 else OncewardError


def _classes() -> dict[str, type[OncewardError]]:
    found: dict[str, type[OncewardError]] = {}
    todo: list[type[OncewardError]] = [OncewardError]
    while todo:
        kind = todo.pop()
        todo += kind.__subclasses__()
        # Not those that only handlers raise.
        if "default_code" in vars(kind) and kind.__module__ == OncewardError.__module__:
            found.setdefault(kind.default_code, kind)
    for code in ("bad_request", "retry", "not_done"):
        del found[code]
    return found


_CLASSES = _classes()
