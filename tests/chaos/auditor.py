"""Compares what was acknowledged with what is there, and with what arrived outside.

Each judge is a function of a history and of what was found in the end, and yields what cannot
have come about rightly. They know nothing of the servers, and keep no state.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

from tests.chaos.history import NEVER_NS, Call, Found, History, Still, Table, Timer, Use, Visit

ROUNDING_MS = 1.0
"""Times are whole milliseconds."""


class Violation(NamedTuple):
    """Something that cannot have come about rightly."""

    kind: str
    text: str


class Slack(NamedTuple):
    """How far clocks may be off where several nodes have one each."""

    lease_ns: int = 5_000_000
    delay_ms: float = 2.0


def audit(history: History, found: Found, slack: Slack = Slack()) -> list[Violation]:  # noqa: B008
    """All violations; none if everything is as it should be."""
    judges: list[Callable[[History, Found], Iterator[Violation]]] = [
        judge_messages,
        judge_steps,
        judge_lines,
        judge_rooms,
        judge_tables,
        judge_rest,
    ]
    violations = [one for judge in judges for one in judge(history, found)]
    violations += judge_locks(history, slack)
    violations += judge_timers(history, found, slack)
    return violations


def judge_messages(history: History, found: Found) -> Iterator[Violation]:
    """Each acknowledged message is one job, which has ended well, and took effect once."""
    for key, message in history.messages.items():
        if len(message.ids) > 1:
            yield Violation("doubled message", f"{key} has become the jobs {sorted(message.ids)}")
        for id_ in message.ids:
            state = found.jobs.get(id_)
            if state is None:
                yield Violation("lost message", f"{key} was acknowledged as {id_}, which is gone")
            elif state != "succeeded":
                yield Violation("not drained", f"{key} is {state} as {id_}")
        count = found.effects.get(key, 0)
        if count > 1:
            yield Violation("doubled effect", f"{key} took effect {count} times")
        if message.ids and message.counted and not count:
            yield Violation("lost effect", f"{key} was acknowledged, and took no effect")
    for key in found.effects.keys() - history.messages.keys():
        yield Violation("made up", f"{key} took effect, and was never sent")


def judge_steps(history: History, found: Found) -> Iterator[Violation]:
    """A step that was recorded does not run again. Whoever begins the second one has found the
    first one recorded."""
    first: dict[str, list[Call]] = defaultdict(list)
    second: dict[str, int] = {}
    jobs: dict[str, set[str]] = defaultdict(set)
    for call in history.calls:
        if call.what in ("first", "second"):
            jobs[call.subject].add(call.job)
        if call.what == "first":
            first[call.job].append(call)
        elif call.what == "second":
            second[call.job] = min(call.begun_ns, second.get(call.job, NEVER_NS))
    for job, begun_ns in second.items():
        if not first[job]:
            yield Violation("step skipped", f"{job} made its second step without the first")
        for call in first[job]:
            if call.begun_ns > begun_ns and not _woke(call, begun_ns, history.stills):
                yield Violation("step ran again", f"{job}: the first one, when it was recorded")
    for key, ids in jobs.items():
        if len(ids) > 1:
            yield Violation("doubled effect", f"{key} was acted on under the ids {sorted(ids)}")
    for key, message in history.messages.items():
        if message.counted and message.ids and not message.ids & second.keys():
            yield Violation("lost effect", f"{key} was acknowledged, and nothing came outside")


def _woke(call: Call, recorded_ns: int, stills: list[Still]) -> bool:
    """Whether its process stood still between the last look at its lease and the step's first
    line, while others went on. No program can keep that from happening."""
    return any(
        still.process == call.process and still.from_ns < recorded_ns and still.to_ns > recorded_ns
        for still in stills
    )


def judge_lines(history: History, found: Found) -> Iterator[Violation]:
    """What has the same order key takes effect in the order in which it was accepted."""
    seen: dict[str, set[int]] = defaultdict(set)
    jobs: dict[tuple[str, int], set[str]] = defaultdict(set)
    for call in history.calls:
        if call.what != "order":
            continue
        jobs[call.subject, call.n].add(call.job)
        before = seen[call.subject]
        if call.n not in before and call.n != len(before) + 1:
            yield Violation("overtaken", f"{call.subject}: {call.n} came after {len(before)}")
        before.add(call.n)
    for (name, n), ids in jobs.items():
        if len(ids) > 1:
            yield Violation("doubled message", f"{name}: {n} has become the jobs {sorted(ids)}")
    for name, line in history.lines.items():
        if not line.inside:
            if missing := set(range(1, line.acknowledged + 1)) - seen[name]:
                yield Violation("lost message", f"{name}: {sorted(missing)[:10]} never came")
            continue
        order = found.orders.get(name)
        if order is None:
            if line.acknowledged:
                yield Violation("lost message", f"{name}: nothing of it is there")
            continue
        for before_n, n in order.wrong:
            yield Violation("overtaken", f"{name}: {n} came after {before_n}")
        if order.last < line.acknowledged:
            yield Violation("lost message", f"{name}: it ends with {order.last}")
        if order.count > order.last:
            yield Violation("doubled effect", f"{name}: {order.count} effects up to {order.last}")


def judge_locks(history: History, slack: Slack) -> Iterator[Violation]:
    """Tokens grow, nobody holds what another one surely holds, and no such one is taken for
    outdated."""
    by_name: dict[str, list[tuple[str, Use]]] = defaultdict(list)
    for id_, use in history.uses.items():
        if use.granted_ns != NEVER_NS:
            by_name[use.name].append((id_, use))
    for name, uses in by_name.items():
        uses.sort(key=lambda one: one[1].token)
        latest_asked_ns = 0
        for (one, before), (other, after) in pairwise(uses):
            if before.token == after.token:
                yield Violation("stale token", f"{name}: {one} and {other} have {after.token}")
            latest_asked_ns = max(latest_asked_ns, before.asked_ns)
            if after.granted_ns < latest_asked_ns:
                yield Violation(
                    "stale token", f"{name}: {other} had {after.token} before {one} even asked"
                )
        yield from _two_holders(name, uses, slack)
    for write in history.writes:
        use = history.uses[write.use]
        if write.refused and write.sent_ns < min(use.until_ns - slack.lease_ns, use.ended_ns):
            yield Violation(
                "stale token", f"{write.name}: {write.use} holds it with the old {write.token}"
            )


def _two_holders(name: str, uses: list[tuple[str, Use]], slack: Slack) -> Iterator[Violation]:
    spans = []
    for id_, use in uses:
        end_ns = min(use.until_ns - slack.lease_ns, use.ended_ns)
        if end_ns > use.granted_ns:
            spans.append((use.granted_ns, end_ns, id_))
    spans.sort()
    for (_, end_ns, one), (start_ns, _, other) in pairwise(spans):
        if start_ns < end_ns:
            yield Violation("two holders", f"{name}: {one} and {other} at the same time")


def judge_timers(history: History, found: Found, slack: Slack) -> Iterator[Violation]:
    """Each timer fires, never early, each time under one id; and not once it was cancelled."""
    visits: dict[str, list[Visit]] = defaultdict(list)
    for visit in history.visits:
        visits[visit.timer].append(visit)
    for id_, timer in history.timers.items():
        if timer.due_ms is None:
            continue  # nobody was told that it is set
        if timer.due_ms < timer.asked_ms + timer.delay_ms - slack.delay_ms:
            early_ms = timer.asked_ms + timer.delay_ms - timer.due_ms
            yield Violation("early timer", f"{id_} was to be due {early_ms:.0f} ms too early")
        if timer.cancelled and not timer.repeats and visits[id_]:
            yield Violation("cancelled timer", f"{id_} was cancelled, and fired")
        if not timer.cancelled and not visits[id_]:
            yield Violation("lost timer", f"{id_} never fired; it is {found.timers.get(id_)}")
        state = found.timers.get(id_)
        if state not in ("cancelled", "success"):
            yield Violation("not drained", f"the timer {id_} is {state}")
        yield from _judge_visits(id_, timer, visits[id_])
    for id_ in visits.keys() - history.timers.keys():
        yield Violation("made up", f"the timer {id_} fired, and was never set")


def _judge_visits(id_: str, timer: Timer, visits: list[Visit]) -> Iterator[Violation]:
    ids: dict[int, set[str]] = defaultdict(set)
    for visit in visits:
        ids[visit.number].add(visit.job)
        due_ms = visit.due_ms
        if not timer.repeats and timer.due_ms is not None:
            due_ms = max(timer.due_ms, due_ms or 0)
        if due_ms is not None and visit.came_ms < due_ms - ROUNDING_MS:
            early_ms = due_ms - visit.came_ms
            yield Violation("early timer", f"{id_} came {early_ms:.1f} ms early: {visit}")
    for number, jobs in ids.items():
        if len(jobs) > 1:
            yield Violation("doubled firing", f"{id_}: {number} came under {sorted(jobs)}")
    if ids and set(ids) != set(range(1, max(ids) + 1)):
        yield Violation("lost timer", f"{id_} fired as {sorted(ids)}")


def judge_rooms(history: History, found: Found) -> Iterator[Violation]:
    """All copies are the same, and have each acknowledged step once."""
    for room, members in history.rooms.items():
        copies = found.rooms.get(room, {})
        if "server" not in copies:
            yield Violation("lost room", f"{room} is not there")
            continue
        for whose, copy in copies.items():
            if copy != copies["server"]:
                yield Violation(
                    "diverged room", f"{room}: {whose} sees {copy}, not {copies['server']}"
                )
        counts = copies["server"]["maps"].get("counts", {})
        for name, member in members.items():
            count = counts.get(name, 0)
            if count < member.taken:
                yield Violation("lost step", f"{room}: {name} has {count}, not {member.taken}")
            if count > member.taken + member.unknown:
                yield Violation("doubled step", f"{room}: {name} has {count}, not {member.taken}")


def judge_tables(history: History, found: Found) -> Iterator[Violation]:
    """Never more sit there than there are seats, nobody is there twice, and nobody gets lost;
    and each acknowledged move was made, once."""
    for id_, table in history.tables.items():
        for seats in table.seen:
            if len(seats) > table.seats:
                yield Violation("too many seated", f"{id_}: {seats}")
            if len(set(seats.values())) < len(seats):
                yield Violation("seated twice", f"{id_}: {seats}")
        yield from _judge_places(id_, table, found)
        yield from _judge_moves(id_, table, found)


def _judge_places(id_: str, table: Table, found: Found) -> Iterator[Violation]:
    places = found.places.get(id_, {})
    for user, there in table.people.items():
        place = places.get(user)
        role = "" if place is None else place.role
        if there and role not in ("seated", "waiting"):
            yield Violation("lost place", f"{id_}: {user} is {role or 'nowhere'}")
        if not there and role in ("seated", "waiting"):
            yield Violation("lost leave", f"{id_}: {user} has left, and is {role}")
    markers = [place.marker for place in places.values() if place.role == "seated"]
    if len(set(markers)) < len(markers) or len(markers) > table.seats:
        yield Violation("too many seated", f"{id_}: {markers}")
    line = sorted((p.number, p.position) for p in places.values() if p.role == "waiting")
    if [position for _, position in line] != list(range(1, len(line) + 1)):
        yield Violation("broken line", f"{id_}: {line}")


def _judge_moves(id_: str, table: Table, found: Found) -> Iterator[Violation]:
    asked: dict[str, set[int]] = defaultdict(set)
    for move in table.moves:
        asked[move.match].add(move.number)
        log = found.logs.get(move.match, [])
        made = log[move.number] if move.number < len(log) else None
        if move.acknowledged and made != (move.seat, move.move):
            yield Violation("lost move", f"{id_}: {move} is {made} in the log")
    for match, log in found.logs.items():
        if match in asked and len(log) > len(asked[match]):
            yield Violation("doubled move", f"{id_}: {len(log)}, {len(asked[match])} asked for")


def judge_rest(history: History, found: Found) -> Iterator[Violation]:
    """Nothing is damaged, and nobody holds anything for ever."""
    for problem in found.problems:
        yield Violation("damaged", problem)
    for name, count in found.held.items():
        if count:
            yield Violation("not drained", f"{count} hold or wait for the lock {name}")
