"""Access to queues for remote callers: covered by a scope and not internal."""

from typing import TYPE_CHECKING, Literal

from onceward.errors import OncewardError
from onceward.schedule import is_internal
from onceward.web.auth import Access

if TYPE_CHECKING:
    from onceward.web.server import Server

Entering = Literal["send", "work"]


def may_enter(server: "Server", caller: Access, action: Entering, queue: str) -> bool:
    """Whether a caller may send to a queue, or claim its jobs."""
    return caller.may(action, queue) and not _is_closed(server, action, queue)


def insist_on_entry(server: "Server", caller: Access, action: Entering, queue: str) -> None:
    """Raise `not_allowed` for a caller that may not."""
    caller.insist(action, queue)
    if _is_closed(server, action, queue):
        does = "sends to it" if action == "send" else "claims its jobs"
        raise OncewardError(
            f"the queue {queue!r} is internal: only code of the application {does}",
            code="not_allowed",
        )


def _is_closed(server: "Server", action: Entering, queue: str) -> bool:
    settings = server.app.node.queue_settings(queue)
    return is_internal(queue, settings) and not (action == "work" and settings.remote_work)
