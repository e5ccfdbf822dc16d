"""Jobs and effects in transactions of the application's own SQL database."""

from typing import TYPE_CHECKING

from onceward.lazy import lazy

if TYPE_CHECKING:
    from onceward.sql.messages import enqueue, enqueue_async
    from onceward.sql.schema import statements

__all__ = ["enqueue", "enqueue_async", "statements"]

# Imported on first use, so that a module of this package loads only its own dependencies.
__getattr__ = lazy(
    __name__,
    {
        "enqueue": "onceward.sql.messages",
        "enqueue_async": "onceward.sql.messages",
        "statements": "onceward.sql.schema",
    },
)
