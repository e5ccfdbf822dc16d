"""Times of what repeats, in words."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from onceward.recurrence import Cron, Repeat, next_ms

BERLIN = "Europe/Berlin"


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1_000)


def times(repeat: Repeat, after: str, count: int) -> list[str]:
    """The next times, as the clock in that zone shows them."""
    zone = ZoneInfo(repeat.zone) if isinstance(repeat, Cron) else UTC
    found: list[str] = []
    time_ms: int | None = ms(after)
    while len(found) < count:
        time_ms = next_ms(repeat, time_ms) if time_ms is not None else None
        assert time_ms is not None
        found.append(f"{datetime.fromtimestamp(time_ms / 1_000, zone):%Y-%m-%d %H:%M:%S%z}")
    return found
