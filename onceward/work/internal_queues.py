"""Access to queues for remote callers: covered by a scope and not internal."""

from collections.abc import Callable
from typing import Literal, Protocol

from onceward.errors import OncewardError
from onceward.schedule import QueueSettings, is_internal

Entering = Literal["send", "work", "manage"]


class _Node(Protocol):
    """The node, which caches the settings of queues."""

    @property
    def queue_settings(self) -> Callable[[str], QueueSettings]: ...


class _Caller(Protocol):
    """A remote caller."""

    def may(self, action: str, name: str) -> bool: ...

    def insist(self, action: str, name: str) -> None: ...


def may_enter(node: _Node, caller: _Caller, action: Entering, queue: str) -> bool:
    """Whether a caller may send to a queue, claim its jobs, or manage it."""
    return caller.may(action, queue) and not _is_closed(node, action, queue)


def insist_on_entry(node: _Node, caller: _Caller, action: Entering, queue: str) -> None:
    """Raise `not_allowed` unless the caller may send to a queue, claim its jobs, or manage it."""
    caller.insist(action, queue)
    if _is_closed(node, action, queue):
        does = "can send to it" if action == "send" else "can claim its jobs"
        raise OncewardError(
            f"the queue {queue!r} is internal: only code of the application {does}; use "
            "another queue",
            code="not_allowed",
        )


def _is_closed(node: _Node, action: Entering, queue: str) -> bool:
    if action == "manage":
        return False
    settings = node.queue_settings(queue)
    return is_internal(queue, settings) and not (action == "work" and settings.remote_work)
