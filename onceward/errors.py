"""The table of all user-visible errors, with one base class.

`TABLE` maps a stable code to its HTTP status, its WebSocket close code, the exit code of the
command line and whether a retry can succeed. Codes never change their meaning; messages may.
Applications add their own codes with `register_error`.
"""

import re
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Code:
    """The meaning of an error code for each kind of caller."""

    status: int
    """HTTP status."""
    close: int
    """WebSocket close code (4000 to 4999 are available to applications)."""
    exit: int
    """Exit code of the command line."""
    retry: bool
    """Whether the same call may succeed later, unchanged."""
    title: str


TABLE: dict[str, Code] = {
    # Mistakes of the caller: the same call fails again.
    "bad_request": Code(400, 4400, 2, False, "The request is malformed"),
    "bad_key": Code(422, 4422, 2, False, "A key is empty, too long or not valid text"),
    "bad_value": Code(422, 4422, 2, False, "A value cannot be stored as JSON"),
    "value_too_large": Code(413, 4413, 2, False, "A value is larger than a record may be"),
    "commit_too_large": Code(413, 4413, 2, False, "A commit has too many writes or bytes"),
    "bad_engine_url": Code(500, 4500, 2, False, "The database URL is not supported"),
    "no_such_job": Code(404, 4404, 2, False, "The job was not found"),
    "no_such_timer": Code(404, 4404, 2, False, "The timer was not found"),
    "no_such_firing": Code(404, 4404, 2, False, "The firing of a timer was not found"),
    "bad_timer": Code(422, 4422, 2, False, "The timer is not valid"),
    "bad_endpoint": Code(422, 4422, 2, False, "The endpoint is not valid"),
    "no_such_endpoint": Code(404, 4404, 2, False, "The endpoint was not found"),
    "already_ended": Code(409, 4409, 2, False, "The job or timer has ended, or is running"),
    "not_failed": Code(409, 4409, 2, False, "The job has not failed"),
    "stream_full": Code(413, 4413, 2, False, "The stream of the job is full"),
    "too_many_events": Code(409, 4409, 2, False, "The job has too many events to consume"),
    "missing_key": Code(422, 4422, 2, False, "The message has no idempotency key"),
    "key_reused": Code(422, 4422, 2, False, "The key was already used with another body"),
    "stale_token": Code(409, 4409, 2, False, "The attempt has ended; another one may be running"),
    "lock_lost": Code(409, 4409, 2, False, "The caller has lost the lock"),
    "lock_capacity": Code(409, 4409, 2, False, "The lock is in use with another capacity"),
    # Invalid HTTP requests.
    "not_json": Code(400, 4400, 2, False, "The body is not JSON"),
    "not_text": Code(400, 4400, 2, False, "The text is not valid Unicode"),
    "not_a_number": Code(400, 4400, 2, False, "A number is NaN, infinite or too large"),
    "duplicate_member": Code(400, 4400, 2, False, "A member occurs twice"),
    "too_deep": Code(400, 4400, 2, False, "The body is nested too deeply"),
    "wrong_type": Code(422, 4422, 2, False, "A member has the wrong type or value"),
    "unknown_member": Code(422, 4422, 2, False, "A member is unknown"),
    "missing_member": Code(422, 4422, 2, False, "A member is missing"),
    "bad_parameter": Code(422, 4422, 2, False, "A parameter of the URL is not valid"),
    "bad_name": Code(422, 4422, 2, False, "A name is empty, too long or has invalid characters"),
    "bad_header": Code(400, 4400, 2, False, "A header occurs twice, or contradicts another"),
    "head_too_large": Code(431, 4431, 2, False, "The head of the request is too large"),
    "too_slow": Code(408, 4408, 75, True, "The request did not arrive in time"),
    "body_too_large": Code(413, 4413, 2, False, "The body exceeds the size limit of requests"),
    "not_found": Code(404, 4404, 2, False, "The path was not found"),
    "method_not_allowed": Code(405, 4405, 2, False, "The path does not support this method"),
    "not_implemented": Code(501, 4501, 2, False, "The server does not implement this"),
    "upgrade_required": Code(426, 4426, 2, False, "The path requires a WebSocket connection"),
    "not_this_type": Code(415, 4415, 2, False, "The body has an unsupported content type"),
    "no_such_lock": Code(404, 4404, 2, False, "The lock was not found"),
    "no_credentials": Code(401, 4401, 77, False, "The request has no valid credentials"),
    "wrong_host": Code(421, 4421, 77, False, "The server does not serve this host name"),
    "no_such_key": Code(404, 4404, 2, False, "The API key was not found"),
    "no_such_session": Code(404, 4404, 2, False, "The session was not found"),
    "not_allowed": Code(403, 4403, 77, False, "The credentials do not allow this"),
    "went_away": Code(499, 4499, 75, True, "The client closed the connection"),
    "internal": Code(500, 4500, 70, False, "The server has a bug"),
    "bad_settings": Code(500, 4500, 78, False, "The settings are not valid"),
    "no_server_key": Code(500, 4500, 78, False, "The server has no server key"),
    "wrong_server_key": Code(500, 4500, 78, False, "The database has another server key"),
    "secret_unreadable": Code(409, 4409, 2, False, "The secret needs another server key"),
    # Rooms. If `retry` is true, clients join or connect again automatically.
    "unknown_frame": Code(400, 4400, 2, False, "The frame has an unknown type"),
    "frame_too_large": Code(413, 4413, 2, False, "The frame exceeds the size limit of frames"),
    "no_such_room": Code(404, 4404, 2, False, "The room was not found"),
    "no_such_member": Code(404, 4404, 2, False, "The member of the room was not found"),
    "room_exists": Code(409, 4409, 2, False, "A room with this name already exists"),
    "room_deleted": Code(410, 4410, 2, False, "The room was deleted"),
    "room_full": Code(
        409, 4409, 75, True, "The room has reached its limit of users or connections"
    ),
    "too_many_rooms": Code(409, 4409, 2, False, "The limit of rooms is reached"),
    "room_moved": Code(503, 4503, 75, True, "Another node serves the room now"),
    "room_too_large": Code(413, 4413, 2, False, "The room would exceed its size limit"),
    "not_joined": Code(409, 4409, 2, False, "The connection has not joined the room"),
    "not_expected": Code(409, 4409, 2, False, "The current value is not the expected one"),
    "not_countable": Code(409, 4409, 2, False, "The current value is not a number"),
    "bad_shape": Code(422, 4422, 2, False, "The value does not match the schema"),
    "bad_schema": Code(422, 4422, 2, False, "The schema is not supported"),
    "history_gone": Code(410, 4410, 2, False, "The room's log does not contain this position"),
    "slow_reader": Code(408, 4408, 75, True, "The client reads too slowly"),
    "token_expired": Code(401, 4401, 77, False, "The token has expired: connect with a new one"),
    "origin_refused": Code(403, 4403, 77, False, "Pages of this origin may not connect"),
    # Tables and games.
    "no_such_table": Code(404, 4404, 2, False, "The table was not found"),
    "table_exists": Code(409, 4409, 2, False, "A table with this name already exists"),
    "table_closed": Code(410, 4410, 2, False, "The table is closed"),
    "table_paused": Code(409, 4409, 75, True, "The table is paused"),
    "table_full": Code(409, 4409, 75, True, "The table has reached its limit of users"),
    "bad_policy": Code(422, 4422, 2, False, "The policy is not valid"),
    "not_seated": Code(409, 4409, 2, False, "The user is not seated at the table"),
    "no_game": Code(409, 4409, 2, False, "No game is running"),
    "other_game": Code(409, 4409, 2, False, "Another game is running"),
    "not_your_turn": Code(409, 4409, 2, False, "It is another player's turn"),
    "bad_move": Code(422, 4422, 2, False, "The move is illegal"),
    "no_such_match": Code(404, 4404, 2, False, "The match was not found"),
    "no_such_game": Code(404, 4404, 2, False, "The application has no game with this name"),
    "stale_move": Code(409, 4409, 2, False, "The game has changed since"),
    "out_of_time": Code(409, 4409, 2, False, "The time for the move is over"),
    "match_over": Code(409, 4409, 2, False, "The game is over"),
    "match_on": Code(409, 4409, 2, False, "The game is still running"),
    # Webhooks.
    "bad_url": Code(422, 4422, 2, False, "The URL is not valid for webhooks"),
    "bad_secret": Code(422, 4422, 2, False, "The webhook secret is not valid"),
    "address_refused": Code(422, 4422, 2, False, "Webhooks may not call this address"),
    "unreachable": Code(502, 4502, 75, True, "The endpoint did not respond"),
    # Errors that handlers raise.
    "retry": Code(503, 4503, 75, True, "The handler requested another attempt"),
    "failed": Code(500, 4500, 70, False, "The handler failed the job permanently"),
    "child_failed": Code(500, 4500, 70, False, "A child of the job failed or was cancelled"),
    "not_done": Code(503, 4503, 75, True, "A step had no effect"),
    "in_doubt": Code(500, 4500, 70, False, "A step may or may not have been done"),
    # Errors of callers that wait for the result of a job.
    "job_failed": Code(500, 4500, 70, False, "The job failed, was cancelled or is in doubt"),
    "not_ended": Code(504, 4504, 75, True, "The job has not ended in time"),
    # Contention: nothing was changed, and a retry is safe.
    "conflict": Code(409, 4409, 75, True, "A record that was read has changed"),
    "contention": Code(503, 4503, 75, True, "Too many conflicts in a row"),
    "lock_held": Code(423, 4423, 75, True, "The lock is held, and was not released in time"),
    "rate_limited": Code(429, 4429, 75, True, "The caller has exceeded its rate limit"),
    "queue_full": Code(429, 4429, 75, True, "The queue has reached its limit of jobs"),
    "too_many_waiters": Code(429, 4429, 75, True, "The lock has reached its limit of waiters"),
    # The outcome is unknown: the change may or may not have been applied.
    "outcome_unknown": Code(503, 4503, 75, True, "The outcome of a commit is unknown"),
    "overloaded": Code(503, 4503, 75, True, "The server is overloaded"),
    "too_many_connections": Code(503, 4503, 75, True, "The server has too many connections"),
    "engine_stopped": Code(503, 4503, 74, False, "Storage failed; the node must be restarted"),
    "forked": Code(500, 4500, 70, False, "The parent process of this fork has opened it"),
    "engine_closed": Code(503, 4503, 75, True, "The engine is closed"),
    "node_stopped": Code(503, 4503, 75, True, "The node is stopping; use another one"),
    "engine_unreachable": Code(503, 4503, 75, True, "The engine cannot be reached"),
    # Storage that cannot be opened or written. Each code has a separate exit code.
    "storage_full": Code(507, 4507, 73, True, "No space is left for data"),
    "database_in_use": Code(503, 4503, 65, True, "Another process owns the database"),
    "database_newer": Code(500, 4500, 66, False, "A newer version wrote the database"),
    "unsupported_format": Code(500, 4500, 64, False, "Another version wrote the database"),
    "not_a_database": Code(500, 4500, 67, False, "The file is not an Onceward database"),
    "is_a_directory": Code(500, 4500, 68, False, "The path is a directory"),
    "read_only": Code(500, 4500, 69, False, "The database is read-only"),
    "no_such_file": Code(404, 4404, 70, False, "The file was not found"),
    "file_exists": Code(409, 4409, 71, False, "The target already exists"),
    "no_such_database": Code(404, 4404, 76, False, "The server has no such database"),
    "access_denied": Code(500, 4500, 77, False, "The database rejects the user"),
    "journal_missing": Code(500, 4500, 72, False, "The journal of the database is missing"),
    "damaged": Code(500, 4500, 72, False, "The database is damaged"),
    "storage_failed": Code(500, 4500, 74, False, "The storage returned an error"),
}


_registered: dict[str, Code] = {}
_OWN = re.compile("[a-z][a-z0-9]*(_[a-z0-9]+)+").fullmatch


def register_error(code: str, *, status: int, title: str, retry: bool = False) -> str:
    """Add an error code of an application, and return it. Call it when a module is imported.

    Idempotent: the same code with the same meaning may be registered again. A Python client that
    registers the code as well raises it.

    Args:
        code: lower-case words joined by `_`. Start with the name of the application, so that the
            code differs from those of Onceward and of other applications: `credit_bad_envelope`.
        status: HTTP status, 400 to 599. WebSocket connections close with 4000 more.
        title: the meaning of the code in a few words, without a full stop.
        retry: whether the same call may succeed later, unchanged.

    Raises:
        BadInput: the code is not valid, or already has another meaning.
    """
    if not _OWN(code):
        raise BadInput(f"{code!r} is not an error code; use a form like 'shop_sold_out'")
    if not 400 <= status <= 599:
        raise BadInput(f"the status of {code!r} must be 400 to 599, not {status}")
    exit_ = 75 if retry else 2 if status < 500 else 70
    kind = Code(status, 4000 + status, exit_, retry, title)
    if (known := find_kind(code)) is not None and (code in TABLE or known != kind):
        raise BadInput(f"the error code {code!r} already means {known.title!r}; choose another")
    _registered[code] = kind
    return code


def find_kind(code: str) -> Code | None:
    """The meaning of a code of the table or of an application; None for an unknown code."""
    return TABLE.get(code) or _registered.get(code)


class OncewardError(Exception):
    """The base class of all errors that Onceward raises.

    `code` is a key of `TABLE`, or registered by an application. `message` explains the error and
    what to do in one or two sentences. `details` are facts for programs.
    """

    default_code: ClassVar[str] = "bad_request"

    def __init__(self, message: str, *, code: str | None = None, **details: object) -> None:
        self.code = code or self.default_code
        kind = find_kind(self.code)
        if kind is None:
            raise KeyError(self.code)  # an unregistered code is a bug
        self.kind = kind
        # `Fail(error)` takes the text of the other error.
        self.message = message if type(message) is str else str(message)
        self.details = details
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"

    def concealed(self) -> "OncewardError":
        """The error with its title in place of the message, which is only for the log."""
        advice = "Retry later" if self.kind.retry else "See the log of the server"
        return OncewardError(f"{self.kind.title}. {advice}.", code=self.code)


class BadInput(OncewardError):
    """A mistake of the caller; nothing was changed."""


class TooLarge(BadInput):
    """A commit exceeds the limits; nothing was changed."""

    default_code = "commit_too_large"


class NoSuchJob(BadInput):
    """No job has this id, or its retention has ended."""

    default_code = "no_such_job"


class NoSuchTimer(BadInput):
    """No timer has this id, or it belongs to another caller."""

    default_code = "no_such_timer"


class NoSuchFiring(BadInput):
    """The timer or endpoint has no firing with this id, or it is no longer kept."""

    default_code = "no_such_firing"


class NoSuchEndpoint(BadInput):
    """No endpoint has this id, or it belongs to another caller."""

    default_code = "no_such_endpoint"


class SecretUnreadable(BadInput):
    """A stored secret is encrypted with a server key that is missing, or was tampered with."""

    default_code = "secret_unreadable"


class NoSuchRoom(BadInput):
    """No room has this id, or it was deleted."""

    default_code = "no_such_room"


class NoSuchTable(BadInput):
    """No table has this id, or it was closed and removed."""

    default_code = "no_such_table"


class NoSuchMatch(BadInput):
    """No match has this id, or it was removed."""

    default_code = "no_such_match"


class HistoryGone(BadInput):
    """A room's log does not contain a sequence number: it was removed, or is in the future."""

    default_code = "history_gone"


class AlreadyEnded(BadInput):
    """The operation comes too late: the job has ended, or is running."""

    default_code = "already_ended"


class NotFailed(BadInput):
    """Only jobs that have failed or are in doubt can be retried or settled."""

    default_code = "not_failed"


class KeyReused(BadInput):
    """The idempotency key was already used with another body; nothing was changed."""

    default_code = "key_reused"


class StaleToken(BadInput):
    """This attempt of a job has ended, or its lease has; nothing was changed."""

    default_code = "stale_token"


class LockLost(BadInput):
    """The caller has lost the lock, because its lease ended or it was released; nothing was
    changed."""

    default_code = "lock_lost"


class LockHeld(OncewardError):
    """Other callers hold the lock, and it was not released in time; nothing was changed."""

    default_code = "lock_held"


class QueueFull(OncewardError):
    """The queue has reached its maximum number of unfinished jobs (`depth_max`); nothing was
    changed."""

    default_code = "queue_full"


class TooManyWaiters(OncewardError):
    """The lock has reached its maximum number of waiters; nothing was changed."""

    default_code = "too_many_waiters"


class AddressRefused(BadInput):
    """A URL leads to an address that webhooks may not call; nothing was sent."""

    default_code = "address_refused"


class Unreachable(OncewardError):
    """An endpoint was called and did not respond. The message has the reason.

    `sent` is the number of times that the request was sent, at least in part. If it is not 0, the
    endpoint may have acted on it. `ours` is true if the cause is on this side.
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
    """Raised by a handler: fail this attempt, and retry at a given time.

    With `after_s` or `at_ms`, the job is retried exactly then. With `not_before_s`, for example
    from a Retry-After header, it is retried after the queue's backoff, but not earlier.
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
        super().__init__(message or "the handler requested another attempt")
        self.after_s = after_s
        self.at_ms = at_ms
        self.not_before_s = not_before_s


class Fail(OncewardError):
    """Raised by a handler: fail the job permanently, regardless of remaining attempts."""

    default_code = "failed"

    def __init__(
        self,
        message: str = "the handler failed the job",
        *,
        code: str | None = None,
        **details: object,
    ) -> None:
        super().__init__(message, code=code, **details)


class NotDone(OncewardError):
    """Raised by an at-most-once step that certainly had no effect. It may name the time of the next
    attempt, like `Retry`."""

    default_code = "not_done"

    def __init__(
        self, message: str = "", *, after_s: float | None = None, not_before_s: float | None = None
    ) -> None:
        super().__init__(message or "nothing was done")
        self.after_s = after_s
        self.not_before_s = not_before_s


class InDoubt(OncewardError):
    """An at-most-once step may or may not have been done."""

    default_code = "in_doubt"


class JobFailed(OncewardError):
    """A job has no result: it failed permanently, was cancelled, or is in doubt."""

    default_code = "job_failed"

    @property
    def id(self) -> str:
        """The id of the job."""
        return self._detail("id")

    @property
    def queue(self) -> str:
        """The queue of the job."""
        return self._detail("queue")

    @property
    def state(self) -> str:
        """`failed`, `cancelled` or `in_doubt`."""
        return self._detail("state")

    @property
    def reason(self) -> str:
        """Why the last attempt failed, or why the job was cancelled."""
        return self._detail("reason")

    @property
    def type(self) -> str:
        """The type of the error of the last attempt, such as `ValueError`; empty if unknown."""
        return self._detail("type")

    def _detail(self, name: str) -> str:
        return str(self.details.get(name, ""))


class ChildFailed(JobFailed, Fail):
    """A child of the job failed or was cancelled. If the handler does not catch it, the job fails
    permanently."""

    default_code = "child_failed"


class NotEnded(OncewardError, TimeoutError):
    """A job has not ended within the time limit of its caller. It continues."""

    default_code = "not_ended"


class Conflict(OncewardError):
    """A checked read of a commit has changed; nothing was changed."""

    default_code = "conflict"


class Contention(OncewardError):
    """A transaction had too many conflicts in a row; nothing was changed."""

    default_code = "contention"


class OutcomeUnknown(OncewardError):
    """The response of a commit was lost: it may or may not be applied, now or later."""

    default_code = "outcome_unknown"


class Unavailable(OncewardError):
    """The engine is unavailable; this call changed nothing."""

    default_code = "engine_unreachable"


class Damaged(Unavailable):
    """Stored data failed verification; this call changed nothing."""

    default_code = "damaged"


class EngineStopped(OncewardError):
    """The storage of the engine failed; commits in flight may or may not be durable.

    The node must stop. Opening the database again shows which commits are durable.
    """

    default_code = "engine_stopped"


class StorageFull(Unavailable):
    """No space is left; this commit was not applied. Reads continue."""

    default_code = "storage_full"


class CannotOpen(OncewardError):
    """A database cannot be opened; the code has the cause, the message the remedy."""

    default_code = "not_a_database"


PASSING = (Contention, OutcomeUnknown, Unavailable)
"""Temporary errors: background tasks wait and retry."""


def class_of(code: str) -> type[OncewardError]:
    """The class of a code. Clients raise the same classes as the package."""
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
        # Without subclasses that only handlers raise.
        if "default_code" in vars(kind) and kind.__module__ == OncewardError.__module__:
            found.setdefault(kind.default_code, kind)
    for code in ("bad_request", "retry", "not_done"):
        del found[code]
    return found


_CLASSES = _classes()
