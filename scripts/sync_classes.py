"""The asynchronous classes with synchronous forms, by the file that `generate_sync` writes."""

from typing import NamedTuple

from scripts.generate_python import class_name, operations_by_noun


class Source(NamedTuple):
    """An asynchronous class, and how it is used from threads."""

    module: str
    name: str
    only: tuple[str, ...] = ()
    """The methods; by default, all that are public."""
    without: tuple[str, ...] = ()
    attributes: dict[str, str] = {}  # noqa: RUF012 - a default that is not changed
    """Attributes with their types."""
    also: tuple[tuple[str, str, str], ...] = ()
    """Methods that the class has from others: their module, class and name."""
    in_loop: bool = False
    """Whether its methods that are not coroutines run in the event loop."""
    opened: str = ""
    """How callers open and close it: the methods, as text."""


_TX = "onceward.store.user_records"
_LIVE = "onceward.client.rooms"
# Nouns with more methods than those of operations.
_EXTENDED = ("jobs", "queues", "locks", "tables")

_ENTERED = """
def __enter__(self) -> Self:
    return self.{0}()

def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    tb: TracebackType | None,
) -> None:
    self.{1}()
"""
_APP = '''
def start(self, *, work: bool = True) -> Self:
    """Open the database and run the handlers; without handlers if `work` is False. Raises the
    errors of the engine. In a forked process, an application on PostgreSQL starts again on
    first use."""
    start = partial(self._target.start, work=work)
    self._open(start, self._target.stop, start)
    return self

def stop(self) -> None:
    """Finish running jobs, hand over to other nodes, and close the database. Idempotent."""
    self._close(self._target.stop)

def work(self, announce: Callable[[], object] = lambda: None) -> None:
    """Run handlers in this process until SIGTERM or SIGINT, then drain. A second signal ends
    the handlers at once. `announce` is called when they run. Raises the error that ended the
    node.

    Call it in the main thread.
    """
    def start(ended: Callable[[], None]) -> None:
        self.start()
        self._target.node.on_end(ended)

    run_until_signal(start, self.stop, announce)
''' + _ENTERED.format("start", "stop")
_OPENED = '''
def open(self) -> Self:
    """Open the connection. WHEN"""
    self._open(self._target.open, self._target.close)
    return self

def close(self) -> None:
    """Close the connection. Idempotent."""
    self._close(self._target.close)
''' + _ENTERED.format("open", "close")
# The files by folder, with their classes. A class is written behind those that its methods return.
FILES: dict[str, tuple[Source, ...]] = {
    "app/transaction": (Source(_TX, "UserTransaction"),),
    "app/queues": (Source("onceward.work.queues", "Queues"),),
    "app/locks": (
        Source(
            "onceward.locks.held",
            "Lock",
            attributes={
                "id": "str",
                "tokens": "dict[str, int]",
                "lost": "asyncio.Event",
                "reason": "str",
            },
        ),
        Source("onceward.locks.server", "Locks", only=("hold", "guard", "gate", "status", "find")),
    ),
    "app/timers": (Source("onceward.webhooks.timers.server", "Timers", without=("admit_url",)),),
    "app/rate_limits": (Source("onceward.rate_limits.part", "RateLimits"),),
    "app/rooms": (
        Source(
            "onceward.rooms.part",
            "Rooms",
            without=("creator_joined", "head", "peek", "append", "append_few", "load", "purge"),
        ),
    ),
    "app/seats": (
        Source(
            "onceward.tables.part",
            "Seats",
            without=(
                "policy_of",
                "count_with",
                "tick",
                "purge",
                "expire",
                "read_to_expire",
                "fetch",
            ),
        ),
    ),
    "app/tables": (Source("onceward.tables.server", "Tables", without=("finish",)),),
    "app/games": (Source("onceward.tables.games.server", "Games"),),
    "app/app": (
        Source(
            "onceward.app",
            "App",
            without=("start", "stop", "work", "work_until_signal", "meters", "alarms"),
            opened=_APP,
            attributes={
                "name": "str",
                "queues": "Queues",
                "locks": "Locks",
                "timers": "Timers",
                "limits": "RateLimits",
                "rooms": "Rooms",
                "games": "Games",
                "seats": "Seats",
                "tables": "Tables",
            },
        ),
    ),
    "client/live": (
        Source(f"{_LIVE}.objects", "Saved", in_loop=True, attributes={"id": "str"}),
        Source(
            f"{_LIVE}.objects",
            "Undone",
            attributes={"step": "Saved | None", "kept": "list[str]"},
        ),
        Source(f"{_LIVE}.objects", "RoomMap", in_loop=True, without=("tell",)),
        Source(f"{_LIVE}.objects", "RoomList", in_loop=True, without=("tell",)),
        Source(f"{_LIVE}.objects", "Presence", in_loop=True, without=("tell",)),
        Source(
            f"{_LIVE}.room",
            "Room",
            in_loop=True,
            only=(
                *("map", "list", "presence", "position", "waiting", "batch", "undo", "redo"),
                *("can_undo", "can_redo", "say", "tell", "on", "count", "on_members"),
                *("on_status", "on_refused", "leave"),
            ),
            attributes={
                "id": "str",
                "status": "Status",
                "error": "OncewardError | None",
                "user": "str",
                "me": "str",
                "members": "dict[str, RoomMember]",
                "presences": "dict[str, dict[str, Any]]",
            },
        ),
        Source(
            f"{_LIVE}.live",
            "Live",
            in_loop=True,
            without=("__init__", "open", "close", "stir", "now_ms", "restart", "rejoin", "forget"),
            opened=_OPENED.replace("WHEN", "It returns immediately."),
            attributes={"state": "State", "error": "OncewardError | None", "user": "str"},
        ),
    ),
    "client/live_place": (
        Source(
            "onceward.client.live_place",
            "LivePlace",
            in_loop=True,
            without=("__init__",),
            attributes={"place": "Place"},
        ),
    ),
    "client/work": (Source("onceward.client.work", "Worker", in_loop=True, without=("__init__",)),),
    **{
        f"client/{noun}": (Source(f"onceward.client.operations.{noun}", class_name(noun)),)
        for noun in operations_by_noun()
        if noun not in _EXTENDED
    },
    **{
        f"client/{noun}": (Source(f"onceward.client.{noun}", noun.capitalize()),)
        for noun in _EXTENDED
    },
    "client/client": (
        Source(
            "onceward.client.client",
            "Client",
            only=("send_many", "worker", "live"),
            also=(("onceward.client.operations.messages", "MessagesOperations", "send"),),
            opened=_OPENED.replace("WHEN", "The first request does that as well."),
            attributes={
                noun: noun.capitalize() if noun in _EXTENDED else class_name(noun)
                for noun in operations_by_noun()
            },
        ),
    ),
}
