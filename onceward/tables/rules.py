"""The rules of a table as pure functions: next player, departures and timeouts."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from onceward import limits
from onceward.api.tables import Policy, Seat, Then
from onceward.tables.records import Front, Head, Lane, Wait


class Entry(NamedTuple):
    """An entry of a lane: the lane's key and the entry's number."""

    lane: str
    number: int


class Up(NamedTuple):
    """A player who gets up, and where they go."""

    marker: str
    then: Then


def lane_key(name: str, tier: int = 0, size: int = 1) -> str:
    """The name of a lane in the head and in the live view."""
    return name if (tier, size) == (0, 1) else f"{name}/{tier}/{size}"


def tier_of(policy: Policy, rating: int) -> int:
    """The tier of a rating, from 0."""
    return sum(rating >= begins for begins in policy.tiers)


def people(seats: Mapping[str, Seat]) -> dict[str, Seat]:
    """The seats without bots."""
    return {marker: seat for marker, seat in seats.items() if not seat.bot}


def reach(policy: Policy, since_ms: int, now_ms: int) -> int:
    """How many tiers apart the opponents of a waiter may be, after this waiting time."""
    if not policy.tiers:
        return 0
    return (now_ms - since_ms) // policy.widen_ms if policy.widen_ms else len(policy.tiers)


def fits(policy: Policy, lane: Lane, tiers: Iterable[int], free: int, now_ms: int) -> bool:
    """Whether the first entry of a lane may sit down with these tiers and this number of free
    seats."""
    if lane.front is None or lane.size > free:
        return False
    far = reach(policy, lane.front.since_ms, now_ms)
    return all(abs(lane.tier - tier) <= far for tier in tiers)


def pick(
    policy: Policy, lanes: Mapping[str, Lane], seated: Collection[Seat], now_ms: int
) -> str | None:
    """The lane whose first entry sits down next.

    Of all that fit with the seated players, it is the one with the highest priority, then the
    oldest. Bots make room.
    """
    persons = [seat for seat in seated if not seat.bot]
    free = len(policy.seats) - len(persons)
    tiers = [seat.tier for seat in persons]
    fitting = [key for key, lane in lanes.items() if fits(policy, lane, tiers, free, now_ms)]
    return min(fitting, key=lambda key: precedence(lanes[key]), default=None)


def precedence(lane: Lane) -> tuple[int, int]:
    """The sort key of lanes; the lowest comes first."""
    assert lane.front is not None
    return lane.priority, lane.front.order


def first_of_all(lanes: Mapping[str, Lane]) -> Lane | None:
    """The lane with the next entry, regardless of free seats."""
    taken = [lane for lane in lanes.values() if lane.front is not None]
    return min(taken, key=precedence, default=None)


def blocked(policy: Policy, head: Head) -> str | None:
    """The lane of the next party if it needs more seats than are free.

    Only if single players sit at the table and wait for opponents.
    """
    taken = [key for key, lane in head.lanes.items() if lane.front is not None]
    first = min(taken, key=lambda key: precedence(head.lanes[key]), default=None)
    seated = people(head.seats).values()
    free = len(policy.seats) - len(seated)
    if first is None or not seated or any(seat.party for seat in seated):
        return None
    return first if 0 < free < head.lanes[first].size else None


def get_up(
    policy: Policy,
    head: Head,
    winners: Collection[str],
    gone: Mapping[str, Then],
    now_ms: int,
    waits: Mapping[str, Sequence[Wait]] | None = None,
) -> list[Up]:
    """The players who get up after a game, in the order in which they join the back of the
    waitlist.

    These are the players in `gone` and, if others take their seats, the losers and the winners with
    enough wins in a row.

    With tiers, `waits` has the first entries of each lane, up to the number of seats. Players stay
    if a seat would remain empty because the waiting players do not fit together.
    """
    seats = head.seats
    ups = [Up(marker, gone[seat.user]) for marker, seat in seats.items() if seat.user in gone]
    left = {marker: seat for marker, seat in seats.items() if seat.user not in gone}
    if not left:
        return ups

    def served(more: Sequence[Up]) -> bool:
        """Whether others sit down if these players get up as well."""
        rising = {marker for marker, _ in more}
        staying = [seat for marker, seat in left.items() if marker not in rising]
        if pick(policy, head.lanes, staying, now_ms) is None:
            return False
        back = [seats[marker] for marker, then in (*ups, *more) if then == "back"]
        return not policy.tiers or _filled(policy, head, waits or {}, staying, back, now_ms)

    if not winners and not gone:  # a draw
        too_many = 0 < policy.max_draws <= head.draws
        if policy.draw != "back" and not too_many:
            return ups
        everyone = [Up(marker, "back") for marker in left]
        # If only some can be replaced, those with the longest time at the table get up.
        longest = sorted(everyone, key=lambda up: left[up.marker].since_ms)
        return ups + _first_served(served, policy, everyone, longest)
    losers = {m: s for m, s in left.items() if s.user not in winners} if winners else {}
    stay = {marker: seat for marker, seat in left.items() if marker not in losers}
    lost = [Up(marker, policy.loser) for marker in losers]
    first = first_of_all(head.lanes)
    freed = len(policy.seats) - len(people(stay))
    if first is not None and first.size > freed:
        # A party would otherwise wait forever, including one that needs further opponents.
        all_up = lost + [Up(marker, "back") for marker in stay]
        if pick(policy, head.lanes, (), now_ms) is not None:
            return ups + all_up
    tired = [Up(m, "back") for m, s in stay.items() if 0 < policy.max_wins <= s.wins]
    if tired and served(lost + tired):
        return ups + lost + tired
    return ups + _first_served(served, policy, lost, lost)


def _first_served(
    served: Callable[[Sequence[Up]], bool], policy: Policy, all_: list[Up], one_by_one: list[Up]
) -> list[Up]:
    """All players, if others can take their seats; with tiers, otherwise as many as can be
    replaced."""
    if served(all_):
        return all_
    fewer = range(len(one_by_one) - 1, 0, -1) if policy.tiers else ()
    return next((one_by_one[:count] for count in fewer if served(one_by_one[:count])), [])


def _filled(
    policy: Policy,
    head: Head,
    waits: Mapping[str, Sequence[Wait]],
    staying: Collection[Seat],
    back: Sequence[Seat],
    now_ms: int,
) -> bool:
    """Whether every seat is taken after all that fit have sat down with the staying players.
    Players in `back` rejoin the end of their lanes first."""
    lanes = dict(head.lanes)
    lines = {key: [(wait.order, wait.since_ms) for wait in found] for key, found in waits.items()}
    for number, seat in enumerate(seat for seat in back if not seat.bot):
        key = lane_key(seat.lane, seat.tier)
        lanes.setdefault(key, Lane(policy.lanes.index(seat.lane), seat.tier))
        lines.setdefault(key, []).append((head.order + number, now_ms))
    tiers = [seat.tier for seat in staying if not seat.bot]
    bots = len(staying) - len(tiers)

    def first(key: str) -> Lane:
        lane, line = lanes[key], lines[key]
        return Lane(lane.priority, lane.tier, lane.size, front=Front(0, *line[0]) if line else None)

    while len(tiers) + bots < len(policy.seats):
        free = len(policy.seats) - len(tiers)
        fronts = {key: first(key) for key in lines}
        able = [key for key, lane in fronts.items() if fits(policy, lane, tiers, free, now_ms)]
        if not able:
            return False
        chosen = min(able, key=lambda key: precedence(fronts[key]))
        del lines[chosen][0]
        tiers += [lanes[chosen].tier] * lanes[chosen].size
        bots = min(bots, len(policy.seats) - len(tiers))
    return True


def swapped(policy: Policy, seats: Mapping[str, Seat]) -> dict[str, Seat]:
    """All seats with the markers rotated by one."""
    markers = [marker for marker in policy.seats if marker in seats]
    shifted = [markers[-1], *markers[:-1]] if markers else []
    return {marker: seats[before] for marker, before in zip(markers, shifted, strict=True)}


def free_marker(policy: Policy, seats: Mapping[str, Seat]) -> str:
    """The first marker that is free or taken by a bot."""
    for marker in policy.seats:
        if marker not in seats:
            return marker
    return next(marker for marker in policy.seats if seats[marker].bot)


def before(lane: Lane, other: Lane, order: int, orders: int) -> int:
    """Estimate how many users of another lane are seated before an entry of this lane.

    The entry is the `order`th of all `orders` entries of the waitlist.
    """
    if other.front is None or other.tier != lane.tier or other.priority > lane.priority:
        return 0
    if other.priority < lane.priority:
        return other.waiting * other.size
    # Earlier entries are seated first: estimate their share as if arrivals were evenly spaced.
    share = max(order - other.front.order, 0) / max(orders - other.front.order, 1)
    return math.ceil(other.waiting * share) * other.size


def group(
    policy: Policy, lanes: Mapping[str, Lane], waits: Mapping[str, Sequence[Wait]], now_ms: int
) -> list[str] | None:
    """The lanes whose first entries fill a table, each repeated for every entry taken; or None.

    `waits` has the first entries of each lane, up to the number of seats.
    """
    fronts = sorted(
        (key for key, found in waits.items() if found),
        key=lambda key: (lanes[key].priority, waits[key][0].order),
    )
    sums = 1  # a bit for each reachable sum of party sizes
    for key in fronts:
        for _ in waits[key]:
            sums |= sums << lanes[key].size
    if not sums >> len(policy.seats) & 1:
        return None
    groups = _Groups(policy, lanes, waits, fronts, now_ms)
    found = (groups.complete([anchor]) for anchor in fronts)
    return next((chosen for chosen in found if chosen is not None), None)


class _Groups:
    """Searches for lanes whose first entries fill a table."""

    def __init__(
        self,
        policy: Policy,
        lanes: Mapping[str, Lane],
        waits: Mapping[str, Sequence[Wait]],
        fronts: Sequence[str],
        now_ms: int,
    ) -> None:
        self._policy = policy
        self._lanes = lanes
        self._waits = waits
        self._fronts = fronts
        self._now_ms = now_ms
        self._dead: set[tuple[str, ...]] = set()
        """Combinations without a solution, regardless of order."""

    def complete(self, chosen: list[str]) -> list[str] | None:
        """Extend the chosen entries until the table is full, oldest first. None if there is no
        solution."""
        free = len(self._policy.seats) - sum(self._lanes[key].size for key in chosen)
        if free <= 0:
            return chosen if free == 0 else None
        those = tuple(sorted(chosen))
        if those in self._dead or len(self._dead) >= limits.SEATS_GROUPS_MAX:
            return None
        able = [key for key in self._fronts if self._fits(key, chosen, free)]
        for key in sorted(able, key=lambda key: self._precedence(key, chosen.count(key))):
            found = self.complete([*chosen, key])
            if found is not None:
                return found
        self._dead.add(those)
        return None

    def _fits(self, key: str, chosen: Sequence[str], free: int) -> bool:
        """Whether the next entry of a lane fits with the chosen ones."""
        at = chosen.count(key)
        if at >= len(self._waits[key]) or self._lanes[key].size > free:
            return False
        far = self._reach(key, at)
        for number, other in enumerate(chosen):
            theirs = self._reach(other, chosen[:number].count(other))
            if abs(self._lanes[key].tier - self._lanes[other].tier) > max(far, theirs):
                return False
        return True

    def _reach(self, key: str, at: int) -> int:
        return reach(self._policy, self._waits[key][at].since_ms, self._now_ms)

    def _precedence(self, key: str, at: int) -> tuple[int, int]:
        return self._lanes[key].priority, self._waits[key][at].order


# Deadlines.


def late(head: Head, now_ms: int) -> list[str]:
    """The users whose time has run out, or whose connection has been lost for too long."""
    return [
        seat.user
        for seat in head.seats.values()
        if 0 < seat.due_ms <= now_ms or 0 < seat.away_ms <= now_ms
    ]


def to_warn(policy: Policy, head: Head, now_ms: int) -> list[Seat]:
    """The seats whose users must be warned now."""
    return [seat for seat in head.seats.values() if 0 < _warn_ms(policy, head, seat) <= now_ms]


def _warn_ms(policy: Policy, head: Head, seat: Seat) -> int:
    if head.phase != "playing" or not policy.warn_ms or not seat.due_ms or seat.warned:
        return 0
    return max(seat.due_ms - policy.warn_ms, 1)


def bot_due_ms(policy: Policy, head: Head) -> int:
    """When a bot takes an empty seat; 0 for never."""
    empty = len(head.seats) < len(policy.seats)
    if not policy.bot_ms or not empty or not people(head.seats) or policy.opens:
        return 0
    return head.empty_ms + policy.bot_ms


def starts_ms(policy: Policy, head: Head) -> int:
    """When the break between games ends; 0 if there is no break or a seat is empty."""
    full = len(head.seats) == len(policy.seats) and bool(people(head.seats))
    if not policy.break_ms or not head.ended_ms or not full or head.phase != "waiting":
        return 0
    return head.ended_ms + policy.break_ms


def next_ms(policy: Policy, head: Head, now_ms: int) -> int:
    """When the table has its next deadline; 0 for never."""
    if head.phase == "closed" or head.paused_ms:
        return 0
    times = [bot_due_ms(policy, head), _widen_ms(policy, head, now_ms), starts_ms(policy, head)]
    for seat in head.seats.values():
        times += [seat.due_ms, seat.away_ms, _warn_ms(policy, head, seat)]
    return min((time for time in times if time), default=0)


def _widen_ms(policy: Policy, head: Head, now_ms: int) -> int:
    """When the first entry of a lane accepts more distant tiers."""
    if head.phase == "playing":
        return 0
    times = [
        lane.front.since_ms + policy.widen_ms * (far + 1)
        for lane in head.lanes.values()
        if lane.front is not None
        and (far := reach(policy, lane.front.since_ms, now_ms)) < len(policy.tiers)
    ]
    return min(times, default=0)


def shift(head: Head, by_ms: int) -> None:
    """Move all clocks of a table by the duration of a pause."""
    for seat in head.seats.values():
        seat.due_ms += by_ms if seat.due_ms else 0
        seat.away_ms += by_ms if seat.away_ms else 0
    head.empty_ms += by_ms if head.empty_ms else 0
    head.ended_ms += by_ms if head.ended_ms else 0
    head.paced_ms += by_ms if head.paced_ms else 0
    head.measured_ms += by_ms if head.measured_ms else 0


def pace_ms(policy: Policy, head: Head) -> int:
    """The expected time until the next waiter is seated: the policy's estimate at first, then a
    moving average."""
    return head.pace_ms or policy.game_ms // max(len(policy.seats) - 1, 1)


def blended_ms(policy: Policy, head: Head, took_ms: int) -> int:
    """The pace after a new measurement: one quarter new, three quarters old."""
    return (3 * pace_ms(policy, head) + took_ms) // 4


def estimate_ms(policy: Policy, head: Head, ahead: int, now_ms: int) -> int:
    """Estimate the waiting time behind `ahead` entries: one pace for each of them, plus the rest of
    the current one."""
    share_ms = pace_ms(policy, head)
    passed_ms = now_ms - head.paced_ms if head.paced_ms else 0
    return ahead * share_ms + max(share_ms - passed_ms, 0)
