"""The presence state of a room: one entry for each name and user.

It is pure: the caller passes the time. An entry ends when its user removes it or disconnects, or
when it expires without renewal.
"""

from typing import Any, NamedTuple, TypeVar

from onceward import limits
from onceward.errors import BadInput

A = TypeVar("A")


class PresenceValue(NamedTuple):
    value: Any
    until_ms: int
    bytes: int


class Presences:
    """The presences of one room."""

    def __init__(self) -> None:
        self._entries: dict[str, dict[str, PresenceValue]] = {}
        self._bytes = 0

    def set(self, name: str, user: str, value: Any, until_ms: int, size: int = 0) -> bool:
        """Set or renew an entry of `size` bytes; return whether its value has changed.

        Raises `BadInput` if the user has too many entries, or the room's entries are too large.
        """
        entries = self._entries.get(name)
        before = None if entries is None else entries.get(user)
        if before is None:
            own = sum(user in others for others in self._entries.values())
            if own >= limits.PRESENCES_PER_USER_MAX:
                raise BadInput(
                    f"a user must have at most {limits.PRESENCES_PER_USER_MAX} presences in a "
                    f"room, not one more with {name[:100]!r}; remove another one first",
                    code="room_too_large",
                )
        more = size - (before.bytes if before is not None else 0)
        if more > 0 and self._bytes + more > limits.PRESENCES_BYTES_MAX:
            raise BadInput(
                f"the presences in a room must have at most {limits.PRESENCES_BYTES_MAX} bytes "
                f"together, not {self._bytes + more}; send less",
                code="room_too_large",
            )
        self._bytes += more
        self._entries.setdefault(name, {})[user] = PresenceValue(value, until_ms, size)
        # In Python 1 equals true, in JSON it does not.
        return before is None or repr(before.value) != repr(value)

    def remove(self, name: str, user: str) -> bool:
        """Remove an entry; return whether it existed."""
        entries = self._entries.get(name, {})
        found = entries.pop(user, None)
        if not entries:
            self._entries.pop(name, None)
        if found is not None:
            self._bytes -= found.bytes
        return found is not None

    def remove_user(self, user: str) -> list[str]:
        """Remove all entries of a user; return their names."""
        return [name for name in list(self._entries) if self.remove(name, user)]

    def remove_name(self, name: str) -> list[str]:
        """Remove a presence of all users; return the users."""
        return [user for user in list(self._entries.get(name, ())) if self.remove(name, user)]

    def expire(self, now_ms: int) -> list[tuple[str, str]]:
        """Remove expired entries; return their names and users."""
        over = [
            (name, user)
            for name, entries in self._entries.items()
            for user, entry in entries.items()
            if entry.until_ms <= now_ms
        ]
        for name, user in over:
            self.remove(name, user)
        return over

    @property
    def next_ms(self) -> int | None:
        """The time at which the next entry expires, or None."""
        return min(
            (entry.until_ms for entries in self._entries.values() for entry in entries.values()),
            default=None,
        )

    def whole(self) -> dict[str, dict[str, Any]]:
        """All values, by name and user."""
        return {
            name: {user: entry.value for user, entry in entries.items()}
            for name, entries in self._entries.items()
        }

    def __bool__(self) -> bool:
        return bool(self._entries)
