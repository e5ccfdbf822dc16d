"""The table of capabilities: one entry each, with its folder and its scopes.

An entry names a folder of the package. `onceward.parts` loads the folder's module `register`, which
declares its kinds of records, their invariants, and its kinds of due entries.

Scopes are declared here, because back ends sign tokens and clients check them without the database
code: this module imports nothing of the package.
"""

from typing import NamedTuple


class Scope(NamedTuple):
    """An action that API keys and tokens can allow, on names that match."""

    action: str
    allows: str
    """What it allows, after "may"."""
    operators: bool = False
    """Whether tokens have it only if the ceiling of their issuer lists it."""
    included_in: tuple[str, ...] = ()
    """The actions that allow this one as well, on the same names."""


class Capability(NamedTuple):
    """A folder of the package, such as `locks` or `tables.games`."""

    folder: str
    scopes: tuple[Scope, ...] = ()


# A capability comes after the ones it depends on.
CAPABILITIES = (
    Capability("store"),
    Capability("maintenance"),
    Capability("schedule"),
    Capability(
        "work",
        (
            Scope("send", "send messages to queues that match, and see the state of its own"),
            Scope("work", "claim jobs of queues that match, and complete, fail and extend them"),
            Scope(
                "manage",
                "see all of queues that match, set, pause, redrive and purge them, and manage the "
                "timers by which the application itself sends to them",
                operators=True,
            ),
        ),
    ),
    Capability("sql"),
    Capability(
        "locks",
        (Scope("lock", "acquire locks whose names match, and see who holds them"),),
    ),
    Capability("rate_limits"),
    Capability(
        "webhooks.timers",
        (
            Scope(
                "timer",
                "set timers whose ids match, and see, move and cancel its own; a timer that sends "
                "to a queue needs `send` as well",
            ),
        ),
    ),
    Capability(
        "webhooks",
        (
            Scope("endpoint", "keep endpoints of its own whose ids match, for timers to call"),
            Scope(
                "portal",
                "see endpoints whose ids match with their calls, rotate secrets, test and resend",
                included_in=("endpoint",),
            ),
        ),
    ),
    Capability(
        "rooms",
        (
            Scope(
                "read",
                "join rooms whose ids match, see their contents, and be seen there",
                included_in=("write", "room"),
            ),
            Scope(
                "write",
                "change maps and lists of such rooms, send events, and create rooms",
                included_in=("room",),
            ),
            Scope("room", "do all that, change settings of such rooms, and delete them"),
        ),
    ),
    Capability(
        "tables",
        (
            Scope(
                "play",
                "see tables whose ids match, join, leave, move and watch for itself",
                included_in=("table",),
            ),
            Scope("lane", "wait in lanes whose names match, as TABLE/LANE, for itself"),
            Scope(
                "table",
                "do all that for others, create, pause and close such tables, and set results",
            ),
        ),
    ),
    Capability("tables.games"),
    Capability(
        "web",
        (
            Scope(
                "operate",
                "see senders, and manage timers and endpoints of all callers whose ids match",
                operators=True,
            ),
            Scope("metrics", "read the metrics of servers whose names match", operators=True),
        ),
    ),
)

SCOPES = {scope.action: scope for one in CAPABILITIES for scope in one.scopes}
