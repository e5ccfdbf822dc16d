"""The presence state of a room: one entry for each name and user.

Pure: the time comes from the caller. An entry goes when its user removes it or has gone, or when
its time is over without renewal. What others are told of it is coalesced: whoever sets an entry
many times in a row is told of less often, but always with the last value.
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
    """All of one room."""

    def __init__(self) -> None:
        self._entries: dict[str, dict[str, PresenceValue]] = {}
        self._bytes = 0

    def set(self, name: str, user: str, value: Any, until_ms: int, size: int = 0) -> bool:
        """Set or renew an entry of so many bytes; says whether its value is another one now.
        Raises `BadInput` if the user has too many, or all have too much."""
        entries = self._entries.get(name)
        before = None if entries is None else entries.get(user)
        if before is None:
            own = sum(user in others for others in self._entries.values())
            if own >= limits.PRESENCES_PER_USER_MAX:
                raise BadInput(
                    f"a user has at most {limits.PRESENCES_PER_USER_MAX} presences in a room",
                    code="room_too_large",
                )
        more = size - (before.bytes if before is not None else 0)
        if more > 0 and self._bytes + more > limits.PRESENCES_BYTES_MAX:
            raise BadInput(
                f"presences in a room have at most {limits.PRESENCES_BYTES_MAX} bytes together",
                code="room_too_large",
            )
        self._bytes += more
        self._entries.setdefault(name, {})[user] = PresenceValue(value, until_ms, size)
        # 1 and true are equal in Python, and not in JSON.
        return before is None or repr(before.value) != repr(value)

    def remove(self, name: str, user: str) -> bool:
        """Remove an entry; says whether there was one."""
        entries = self._entries.get(name, {})
        found = entries.pop(user, None)
        if not entries:
            self._entries.pop(name, None)
        if found is not None:
            self._bytes -= found.bytes
        return found is not None

    def remove_user(self, user: str) -> list[str]:
        """Remove all entries of a user; says of which names."""
        return [name for name in list(self._entries) if self.remove(name, user)]

    def remove_name(self, name: str) -> list[str]:
        """Remove a whole presence; says whose entries there were."""
        return [user for user in list(self._entries.get(name, ())) if self.remove(name, user)]

    def expire(self, now_ms: int) -> list[tuple[str, str]]:
        """Remove what is over by now; says which names and users."""
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
        """When the next entry is over, if nobody renews it."""
        return min(
            (entry.until_ms for entries in self._entries.values() for entry in entries.values()),
            default=None,
        )

    def whole(self) -> dict[str, dict[str, Any]]:
        """Of each name the values, by user."""
        return {
            name: {user: entry.value for user, entry in entries.items()}
            for name, entries in self._entries.items()
        }

    def __bool__(self) -> bool:
        return bool(self._entries)
