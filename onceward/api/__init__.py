"""The API as data: operations of a server, with the structs of their requests and responses.

The package imports nothing that runs, so that clients can share it with the server.
"""

from typing import Any

from onceward.api import (
    callers,
    endpoints,
    jobs,
    keys,
    locks,
    matches,
    messages,
    queues,
    rooms,
    server,
    sessions,
    tables,
    timers,
)
from onceward.api.operation import Operation

_MODULES = (
    messages,
    jobs,
    queues,
    locks,
    rooms,
    tables,
    timers,
    endpoints,
    matches,
    server,
    keys,
    callers,
    sessions,
)

OPERATIONS: dict[str, Operation[Any]] = {
    operation.name: operation
    for module in _MODULES
    for operation in vars(module).values()
    if isinstance(operation, Operation)
}
"""All operations by name."""

NOUNS: dict[str, str] = {
    operation.noun: " ".join((module.__doc__ or "").partition("\n\n")[0].split())
    for module in _MODULES
    for operation in vars(module).values()
    if isinstance(operation, Operation)
}
"""The nouns of operations, each with the description of its module."""
