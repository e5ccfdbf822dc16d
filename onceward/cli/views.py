"""Responses as text for people: facts, tables, and views of their own for some structs."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, get_args

import msgspec

from onceward.api.endpoints import CreatedEndpoint, Endpoint
from onceward.api.job_history import JobAttempt, JobChange, JobChild
from onceward.api.jobs import Job, JobHistory, JobOutcome, JobSummary, State
from onceward.api.keys import CreatedKey
from onceward.api.locks import Lock
from onceward.api.messages import MessageVerdict, Receipt
from onceward.api.operation import Operation
from onceward.api.queues import ChangedJobs, Queue
from onceward.api.rooms import ListedRoom, RoomEntry, RoomSnapshot
from onceward.api.server import Overview, ServerClock
from onceward.api.tables import Ending, Place, Table, Waiter
from onceward.api.timers import CreatedTimer, Firing, Timer, TimerAttempt
from onceward.cli.calls import CURSORS, cursor_of
from onceward.cli.display import Cell, print_facts, print_json, print_note, print_table, width
from onceward.cli.job_report import JobReport, span_rows, waits_for
from onceward.job_options import JobOptions

# Numbers from here on are points in time (2020), smaller ones are durations of up to 50 years.
_TIME_MS_MIN = 1_577_836_800_000
_UNITS_MS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))
# Members that are copied, and so have no thousands separators.
_PLAIN = frozenset(("token", "seq", "number", "n", "status"))
# Members that any JSON value can have.
_AS_JSON = frozenset(("body", "result", "value"))
_STATES: tuple[str, ...] = get_args(State)
# Columns of job options in lists. Attempts have a separate column.
_OPTIONS = [one for one in JobOptions.__struct_fields__ if one not in ("priority", "attempts_max")]
# Narrow lists of queues have the main states, and jobs in doubt. `onceward queues get` has all.
_ALL_STATES_WIDTH = 110
# Shown in lists of queues if they are 0 as well.
_MAIN_STATES = ("queued", "running", "succeeded", "failed")


def show(operation: Operation[Any], response: Any, given: Mapping[str, Any]) -> None:
    """Print a response."""
    view = _VIEWS.get(type(response))
    member = list_member(response)
    if isinstance(response, ChangedJobs):
        _show_changed(response, "retried" if operation.name == "queues.redrive" else "cancelled")
    elif view is not None:
        view(response)
    elif member is not None:
        _show_list(operation, response, member, given)
    elif isinstance(response, msgspec.Struct):
        show_struct(response)
    else:
        print_json(response)


def list_member(response: Any) -> str | None:
    """The member with the entries, if a response is a list of structs."""
    names = getattr(response, "__struct_fields__", ())
    values = {name: getattr(response, name) for name in names}
    lists = [name for name, value in values.items() if isinstance(value, list)]
    if len(lists) != 1 or {"id", "name", "caller"} & values.keys():
        return None
    others = [value for name, value in values.items() if name != lists[0]]
    plain = all(value is None or isinstance(value, str | int) for value in others)
    return lists[0] if plain else None


def _show_list(
    operation: Operation[Any], response: Any, member: str, given: Mapping[str, Any]
) -> None:
    items = getattr(response, member)
    if not items:
        print_note(_empty(operation, member, given))
        return
    show_items(items, given)
    after = getattr(response, "next", None)
    if after is not None:
        cursor = f", or continue with --{cursor_of(operation)} {after}"
        print_note(f"There are more. Use --limit{cursor if cursor.isprintable() else ''}")


def _empty(operation: Operation[Any], member: str, given: Mapping[str, Any]) -> str:
    """A sentence with the filters of an empty list: No failed jobs in 'orders'."""
    words = dict(given)
    what = _LISTED.get(operation.name, member.replace("_", " "))
    state = words.pop("state", words.pop("phase", ""))
    what = f"{what} in doubt" if state == "in_doubt" else f"{state} {what}".strip()
    place = next((name for name in ("queue", "id", "ladder") if name in words), None)
    where = "" if place is None else f" in {words.pop(place)!r}"
    filters = [
        f"{name.replace('_', ' ')} {value!r}"
        for name, value in words.items()
        if isinstance(value, str) and name not in CURSORS
    ]
    found = f"No {what}{where}{' with ' if filters else ''}{', '.join(filters)}."
    return f"{found} {_HINTS[operation.name]}" if operation.name in _HINTS else found


_LISTED = {
    "jobs.claim": "queued jobs",
    "queues.failed": "failed jobs",
    "callers.suspended": "suspended callers",
    "tables.waitlist": "waiters",
    "timers.due": "timers",
}
_HINTS = {
    "timers.list": "Use --app for timers of the application, or `onceward timers list-all`.",
    "jobs.claim": "Use --wait-s to wait for one.",
}


def show_items(items: Sequence[Any], given: Mapping[str, Any]) -> None:
    """Print structs as a table, with the columns that matter. On a terminal, columns without
    values, and those of the queue and state in `given`, are left out."""
    if isinstance(items[0], Queue):
        _show_queues(items)
        return
    heads: list[str] = []
    cells: list[list[Cell]] = []
    whole = width() is None  # programs rely on the positions of columns
    for column in _COLUMNS.get(type(items[0])) or _all_columns(items):
        name, read = column if isinstance(column, tuple) else (column, None)
        values = [read(one) if read else _cell(name, getattr(one, name, "")) for one in items]
        known = name in ("queue", "state", "phase") and name in given
        filled = any(value not in ("", 0, "no") for value in values)
        if whole or not heads or (filled and not known):
            heads.append(label(name))
            cells.append(values)
    print_table(heads, list(zip(*cells, strict=True)))


def _all_columns(items: Sequence[Any]) -> list[Any]:
    """The members of structs, which can be of several kinds."""
    if not isinstance(items[0], msgspec.Struct):
        return [("value", text_of)]
    names = dict.fromkeys(name for item in items for name in item.__struct_fields__)
    tagged = items[0].__struct_config__.tag is not None
    return [*([("kind", _kind)] if tagged else []), *names]


def _kind(item: Any) -> str:
    return str(item.__struct_config__.tag)


def show_struct(value: msgspec.Struct) -> None:
    """Print a struct: names and values, then lists of structs as tables."""
    print_facts(facts(value))
    for name in value.__struct_fields__:
        inner = getattr(value, name)
        if isinstance(inner, list) and inner and isinstance(inner[0], msgspec.Struct):
            print(f"\n{label(name)}:")
            show_items(inner, {})


def facts(value: msgspec.Struct, *without: str) -> Iterator[tuple[str, str]]:
    """The members of a struct as names and texts. Empty ones, and those that have their default,
    are left out."""
    for field in msgspec.structs.fields(value):
        name, inner = field.name, getattr(value, field.name)
        listed = isinstance(inner, list) and inner and isinstance(inner[0], msgspec.Struct)
        hidden = listed or name in without or inner == field.default
        if not hidden and (text := text_of(inner, name)):
            yield label(name), text


def label(name: str) -> str:
    """The name of a member for people: `created_ms` is "created"."""
    return name.removesuffix("_ms").replace("_", " ")


def _cell(name: str, value: Any) -> Cell:
    if type(value) in (int, float) and value == int(value) and not name.endswith("_ms"):
        return str(value) if name in _PLAIN else int(value)
    return text_of(value, name)


def text_of(value: Any, name: str = "") -> str:
    """A value as text: times in UTC, durations with units, structures as JSON."""
    if value is None or value == "" or (not value and isinstance(value, list | dict | tuple)):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and name.endswith("_ms"):
        return shown_ms(value) if value or isinstance(value, float) else ""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    plain = isinstance(value, dict) and all(type(one) in (str, int) for one in value.values())
    if plain and name not in _AS_JSON:
        return ", ".join(f"{name}: {one}" for name, one in value.items())
    return msgspec.json.encode(value).decode()


def shown_ms(value: float) -> str:
    """A point in time, or a duration."""
    return shown_time(int(value)) if value >= _TIME_MS_MIN else shown_duration(value)


def shown_time(time_ms: int) -> str:
    """A point in time in UTC: 2026-01-31 09:00:00Z."""
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}Z"
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


def shown_duration(duration_ms: float) -> str:
    """A duration with its two largest units: 1 h 30 min."""
    if duration_ms < 1_000:
        return f"{round(duration_ms, 1):g} ms"
    if duration_ms < 60_000:
        return f"{round(duration_ms / 1_000, 1):g} s"
    words = []
    left = int(duration_ms)
    for unit, unit_ms in _UNITS_MS:
        count, left = divmod(left, unit_ms)
        if count:
            words.append(f"{count:,} {unit}")
    return " ".join(words[:2])


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


# Messages and jobs.


def _show_receipt(receipt: Receipt) -> None:
    accepted = "Accepted before:" if receipt.duplicate else "Accepted"
    print(f"{accepted} {receipt.id} ({receipt.state.replace('_', ' ')})")
    if receipt.state == "succeeded":
        print_json(receipt.result)
    elif receipt.reason:
        print(receipt.reason)


def _rejection(verdict: MessageVerdict) -> str:
    rejected = verdict.rejected
    return f"{rejected.detail} [{rejected.code}]" if rejected is not None else ""


def _show_outcome(outcome: JobOutcome) -> None:
    print(f"{outcome.id} is {outcome.state.replace('_', ' ')}")
    if outcome.in_doubt:
        print(f"Steps in doubt: {', '.join(outcome.in_doubt)}. {_SETTLE}")


_SETTLE = (
    "If the handler cannot find out their outcome, the job is in doubt again. Settle it with "
    "`onceward jobs settle`."
)


def _job_facts(job: Job) -> Iterable[tuple[str, str]]:
    long = ("body", "result", "history", "settled", "changes", "progress", "progress_text")
    yield from facts(job, "attempt", "attempts_max", "priority", *long)
    yield "attempts", _attempts(job)
    yield "progress", _progress(job)
    yield "body", _json(job.body)
    yield "result", _json(job.result) if job.state == "succeeded" else ""
    past = [(one.ended_ms, f"attempt {one.attempt}", _attempt(one)) for one in job.history]
    past += [(change.at_ms, change.kind, _change(change)) for change in job.changes]
    for _, name, text in sorted(past, key=lambda one: one[0]):
        yield name, text
    if job.history and job.history[-1].traceback:
        yield "traceback", job.history[-1].traceback


def _show_report(found: JobReport) -> None:
    print_facts(_job_facts(found.job))
    print_facts([("waits for", waits_for(found))])
    rows: list[list[Cell]] = [
        [f"+{shown_duration(start_ms)}", name, shown_duration(took_ms), bar]
        for start_ms, name, took_ms, bar in span_rows(found)
    ]
    if rows:
        print()
        print_table(["start", "timeline", "duration", "bar"], rows)
    if found.parent is not None:
        print()
        print_facts([("parent", f"{found.parent.name} {found.parent.queue} {found.parent.state}")])
    if found.counts is not None and found.counts.total:
        states = ", ".join(f"{count:,} {state}" for state, count in found.counts.states.items())
        print()
        print_facts([("children", f"{found.counts.total:,}: {states}")])
        children: list[list[Cell]] = [
            [f"{one.call}.{one.index}", one.id, one.queue, one.state, _took(one), one.reason]
            for one in found.children
        ]
        print_table(["child", "id", "queue", "state", "duration", "reason"], children)
        if found.counts.total > len(children):
            print_note(f"All of them: `onceward jobs children {found.job.id} --limit 1000`")


def _took(child: JobChild) -> str:
    ended = child.started_ms and child.ended_ms
    return shown_duration(child.ended_ms - child.started_ms) if ended else ""


def _attempts(job: Job | JobSummary) -> str:
    return f"{job.attempt} of {job.attempts_max or 'any number'}"


def _progress(job: Job | JobSummary) -> str:
    return "" if job.progress is None else f"{job.progress:.0%} {job.progress_text}".rstrip()


def _attempt(attempt: JobAttempt) -> str:
    return f"{shown_time(attempt.ended_ms)} {attempt.worker}: {attempt.reason}"


def _change(change: JobChange) -> str:
    step = f" {change.step}: {change.outcome}," if change.step else ""
    after = " after" if change.kind == "retried" else ""
    reason = f"{after}: {change.reason}" if change.reason else ""
    return f"{shown_time(change.at_ms)}{step} by {change.by or 'the application'}{reason}"


def _show_history(history: JobHistory) -> None:
    print_facts([*_job_facts(history.job), *facts(history, "job", "cause")])
    if history.cause is not None:
        print_facts([("cause", _json(history.cause))])
    for name in ("steps", "effects"):
        if entries := getattr(history, name):
            print(f"\n{name}:")
            show_items(entries, {})


def _show_changed(changed: ChangedJobs, verb: str) -> None:
    print(f"1 job {verb}" if changed.jobs == 1 else f"{changed.jobs:,} jobs {verb}")
    if changed.in_doubt:
        print(f"Jobs with steps in doubt: {changed.in_doubt:,}. {_SETTLE}")


def _show_queues(queues: Sequence[Queue]) -> None:
    columns = width()
    found = {state for queue in queues for state, count in queue.jobs.items() if count}
    if columns is not None and columns < _ALL_STATES_WIDTH:
        found &= {"in_doubt"}
    shown = {*found, *_MAIN_STATES} if columns is not None else set(_STATES)
    states = [state for state in _STATES if state in shown]
    heads = ["queue", *(state.replace("_", " ") for state in states), "" if columns else "paused"]
    rows: list[list[Cell]] = [
        [
            queue.name,
            *(queue.jobs.get(state, 0) for state in states),
            "paused" if queue.settings.paused else "",
        ]
        for queue in queues
    ]
    print_table(heads, rows)
    print_note(_counted(max(queue.counted_ms or 0 for queue in queues)))


def _counted(counted_ms: int) -> str:
    return f"Counted {shown_time(counted_ms)}" if counted_ms else "Jobs have not been counted yet."


def _settings(queue: Queue) -> str:
    settings = msgspec.to_builtins(queue.settings)
    return ", ".join(f"{label(name)} {_setting(name, value)}" for name, value in settings.items())


def _setting(name: str, value: Any) -> str:
    return text_of(value, name) if isinstance(value, str | bool | int | list) else _json(value)


def _queue_facts(queue: Queue) -> Iterable[tuple[str, str]]:
    yield "queue", queue.name
    for state in _STATES:
        if state in _MAIN_STATES or queue.jobs.get(state):
            yield state.replace("_", " "), f"{queue.jobs.get(state, 0):,}"
    yield "oldest queued", text_of(queue.oldest_queued_ms, "oldest_queued_ms")
    yield "settings", _settings(queue)
    yield "counted", shown_time(queue.counted_ms) if queue.counted_ms else "not yet"


# Locks.


def _show_lock(lock: Lock) -> None:
    print(f"{lock.name}: {lock.held:,} of {lock.capacity:,} held, {lock.waiting:,} waiting")
    for name, people in (("holder", lock.holders), ("waiter", lock.waiters)):
        if people:
            number = "token" if name == "holder" else "position"
            rows = [[one.owner, shown_time(one.since_ms), str(one.number)] for one in people]
            print_table([name, "since", number], rows)


# Timers and endpoints.


def _show_created_timer(timer: CreatedTimer) -> None:
    created = "Timer exists already:" if timer.duplicate else "Created timer"
    print(f"{created} {timer.id} (due {shown_time(timer.due_ms)})")


def _timer_facts(timer: Timer) -> Iterable[tuple[str, str]]:
    action = ("url", "endpoint", "queue", "body", "every_ms", "cron", "zone", "catch_up", "method")
    yield from facts(timer, "due", "left_ms", "fired", "next", "last", "on_failure", *action)
    yield "next", ", ".join(map(_shown, timer.next))
    yield "action", _action(timer)
    if timer.on_failure is not None:
        report = timer.on_failure
        yield "on failure", _target(report.queue, report.url, report.endpoint)
    yield "body", "" if timer.body is None else _json(timer.body)
    if timer.fired:
        yield "fired", _times(timer.fired)
    if timer.last is not None:
        last = timer.last
        yield "firing", f"{last.id} at {shown_time(last.fired_ms)}: {last.state}"
        for past in last.attempts:
            yield f"attempt {past.attempt}", _timer_attempt(past)
        if last.next_attempt_ms is not None:
            yield "next attempt", shown_time(last.next_attempt_ms)
        if last.pause is not None:
            yield "paused", f"no response to {last.pause.failures} calls in a row"


def _timer_attempt(past: TimerAttempt) -> str:
    return f"{shown_time(past.at_ms)} {past.outcome}{': ' if past.said else ''}{past.said}"


def _said(firing: Firing) -> str:
    """The response or error of the last attempt of a firing."""
    return firing.attempts[-1].said if firing.attempts else ""


def _tries(firing: Firing) -> int:
    return firing.attempts[-1].attempt if firing.attempts else 0


def _shown(time: str) -> str:
    """A time of the API, as in RFC 3339, for people."""
    return shown_time(int(datetime.fromisoformat(time).timestamp() * 1_000))


def _action(timer: Timer) -> str:
    """What a timer does, and how often, on one line."""
    text = _target(timer.queue, timer.url, timer.endpoint, timer.method)
    if timer.every_ms is not None:
        text += f" every {shown_duration(timer.every_ms)}"
    if timer.cron is not None:
        text += f" at {timer.cron} ({timer.zone or 'UTC'})"
    return text


def _target(queue: str | None, url: str | None, endpoint: str | None, method: str = "POST") -> str:
    if queue is not None:
        return f"send to {queue}"
    call = "call" if method == "POST" else method
    return f"{call} {url or f'endpoint {endpoint}'}"


def _endpoint_facts(endpoint: Endpoint) -> Iterable[tuple[str, str]]:
    yield from facts(
        endpoint,
        *("disabled", "suspended", "health", "headers", "secrets", "rate", "pause", "duplicate"),
    )
    yield "health", _health(endpoint)
    if endpoint.pause is not None:
        failures = f"no response to {endpoint.pause.failures} calls in a row"
        yield "paused", f"{failures}; one call at a time"
    if endpoint.rate is not None:
        yield "calls", f"{endpoint.rate.calls:,}, {endpoint.rate.delivered:,} delivered"
    for name, value in endpoint.headers.items():
        yield "header", f"{name}: {value}"
    for secret in endpoint.secrets or []:
        until = "" if secret.until_ms is None else f" until {shown_time(secret.until_ms)}"
        yield "secret", secret.secret + until


def _health(endpoint: Endpoint) -> str:
    health = endpoint.health
    if endpoint.disabled:
        return "disabled"
    if endpoint.suspended:
        return "suspended: the server lacks the server key of its secrets"
    if health.since_ms is None:
        return "ok"
    state = "failing" if health.failing else "ok"
    return f"{state} since {shown_time(health.since_ms)}: {health.said}"


# Tables.


def _table_facts(table: Table) -> Iterable[tuple[str, str]]:
    yield "table", table.id
    yield "state", _phase(table)
    yield "seats", _seats(table)
    yield "waiting", f"{table.waiting:,}"
    yield "spectators", f"{table.spectators:,}"
    yield "game", f"{table.game} {table.number or 'not started'}".strip()
    yield "kind", table.policy.kind
    shown = ("id", "phase", "seats", "waiting", "spectators", "policy", "game", "number")
    yield from facts(table, *shown, "paused", "paused_why")


def _phase(table: Table) -> str:
    why = f": {table.paused_why}" if table.paused_why else ""
    return f"paused{why}" if table.paused else table.phase


def _seats(table: Table) -> str:
    return ", ".join(
        f"{marker}: {'empty' if seat is None else seat.user}"
        for marker, seat in table.seats.items()
    )


def _users(waiter: Waiter) -> str:
    return ", ".join(waiter.users) or f"{waiter.size:,} hidden"


def _show_place(place: Place) -> None:
    roles = {
        "seated": f"plays at {place.table} as {place.marker}",
        "waiting": f"is number {place.position} in the waitlist of {place.table}, "
        f"estimated wait {shown_duration(place.wait_ms)}",
        "watching": f"is watching {place.table}",
        "": f"is not at {place.table}",
    }
    print(f"{place.user} {roles[place.role]}")


def _show_ending(ending: Ending) -> None:
    won = f"won by {', '.join(ending.winners)}" if ending.winners else "a draw"
    print(f"Ended game {ending.number}: {won}")
    if ending.ratings:
        print_facts((user, f"{rating:,}") for user, rating in ending.ratings.items())


# The server.


def _show_clock(clock: ServerClock) -> None:
    print(shown_time(clock.now_ms))
    if clock.held:
        print(
            f"The clock of the machine shows {shown_time(clock.wall_ms)}, far ahead of the last "
            "commit, and is not used. If it is right, run `onceward server confirm-clock`."
        )


def _show_snapshot(snapshot: RoomSnapshot) -> None:
    print_json(snapshot)  # facts would not show it whole


def _show_key(key: CreatedKey) -> None:
    print_facts(facts(key))
    print("Store the key now: it is shown once.")


def _show_overview(overview: Overview) -> None:
    print_facts(facts(overview, "queues", "attention"))
    for name in ("attention", "queues"):
        if entries := getattr(overview, name):
            print(f"\n{name}:")
            show_items(entries, {})


_COLUMNS: dict[type, tuple[Any, ...]] = {
    JobSummary: (
        *("id", "state", "queue", "key", *_OPTIONS),
        *(("attempts", _attempts), "created_ms", "reason", ("progress", _progress)),
    ),
    Job: ("id", "state", "key", *_OPTIONS, ("attempts", _attempts), "ended_ms", "reason"),
    Timer: ("id", "caller", "state", "due_ms", "fired", ("action", _action)),
    Firing: (
        *("number", "id", "state", "due_ms", "fired_ms", "latency_ms", "next_attempt_ms", "resent"),
        *(("attempts", _tries), ("response", _said)),
    ),
    Endpoint: ("id", "caller", ("health", _health), "url"),
    Table: ("id", ("state", _phase), "game", "waiting", ("seats", _seats)),
    Waiter: ("position", ("users", _users), "lane", "since_ms"),
    ListedRoom: ("id", "members", "created_ms", "by", "meta"),
    RoomEntry: ("seq", "at_ms", "by", "ops"),
    MessageVerdict: (
        ("id", lambda one: one.accepted.id if one.accepted else ""),
        ("state", lambda one: one.accepted.state if one.accepted else "rejected"),
        ("reason", _rejection),
    ),
}

_VIEWS: dict[type, Callable[[Any], None]] = {
    Receipt: _show_receipt,
    JobOutcome: _show_outcome,
    JobHistory: _show_history,
    Lock: _show_lock,
    CreatedTimer: _show_created_timer,
    Place: _show_place,
    Ending: _show_ending,
    ServerClock: _show_clock,
    CreatedKey: _show_key,
    Overview: _show_overview,
    RoomSnapshot: _show_snapshot,
    Job: lambda job: print_facts(_job_facts(job)),
    JobReport: _show_report,
    Queue: lambda queue: print_facts(_queue_facts(queue)),
    Timer: lambda timer: print_facts(_timer_facts(timer)),
    Endpoint: lambda endpoint: print_facts(_endpoint_facts(endpoint)),
    CreatedEndpoint: lambda endpoint: print_facts(_endpoint_facts(endpoint)),
    Table: lambda table: print_facts(_table_facts(table)),
}
