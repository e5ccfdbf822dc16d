"""The store: runs transactions, commits them, and retries on conflict.

`await store.run(fn)` runs `async def fn(tx)` and commits its writes if its reads are unchanged. On
conflict it runs `fn` again, so `fn` may run several times and must have no effects besides `tx`.
When `run` returns, the commit is durable. Transactions are serializable, including read-only ones
and those that raise.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, NamedTuple, TypeVar

from onceward import limits
from onceward.clock import Clock, new_clock
from onceward.engine.base import (
    ABSENT,
    ANY,
    Check,
    Delete,
    Engine,
    Incarnation,
    Put,
    Record,
    Version,
    Write,
)
from onceward.errors import (
    PASSING,
    Conflict,
    Contention,
    EngineStopped,
    OncewardError,
    OutcomeUnknown,
    TooLarge,
    Unavailable,
)
from onceward.ids import Ids
from onceward.json_values import decode
from onceward.meters import Meters
from onceward.server_key import ServerKeys
from onceward.store.cache import Heads
from onceward.store.transaction import Transaction

T = TypeVar("T")

LAST_TIME: Final = ("clock", "last")
"""The last recorded time of a node, in ms."""
CLOCK_AHEAD: Final = "clock_ahead"
CLOCK_BEHIND: Final = "clock_behind"


class Commit(NamedTuple):
    """A durable commit, as passed to hooks."""

    version: Version
    writes: list[Write]
    now_ms: int


class Store:
    """Runs transactions on an engine. One per process and database."""

    def __init__(self, engine: Engine, clock: Clock | None = None, ids: Ids | None = None) -> None:
        self.engine = engine
        self.clock = clock or new_clock()
        self.ids = ids or Ids(self.clock.now_ms)
        own_key = engine.own_key()
        self.server_keys = ServerKeys([] if own_key is None else [own_key], self.random_bytes)
        """The keys that sign and encrypt; empty until keys are loaded, unless the engine has one.
        """
        self.meters = Meters()
        """The metrics of this process."""
        self.alarms = engine.alarms
        """Conditions for the operator's attention; the engine raises some of them."""
        self.alarms.now_ms = self.clock.now_ms
        self._commit_seconds = self.meters.histogram("commit_seconds")
        self._timed = False
        self.clock_held = False
        """Whether the wall clock is rejected and time continues from the last commit."""
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        self._heads = Heads()
        self._hooks: list[Callable[[Commit], None]] = []
        self._change_hooks: dict[str, list[Callable[[Put | Delete], None]]] = {}
        self.on_stopped: Callable[[], None] = _nothing
        """Called when a commit finds that the engine has stopped."""
        # Applied commits are numbered. Commits whose caller was cancelled are kept by number.
        self._applied = 0
        self._left: dict[int, tuple[Transaction, Commit]] = {}
        self._telling: set[asyncio.Task[None]] = set()
        self._outliving: dict[Transaction, asyncio.Task[Version]] = {}
        """Commits on shared engines whose caller was cancelled."""
        self._unhook = engine.on_incarnation(self._incarnation_changed)

    def random_bytes(self, count: int) -> bytes:
        """Random bytes from the IDs of this store, which are reproducible with a seed."""
        return bytes.fromhex(self.ids.token(count))

    def on_durable(self, hook: Callable[[Commit], None]) -> Callable[[], None]:
        """Call `hook` with every durable commit of this store that changed records.

        Engines in this process call it in the order of commits. It is also called if the caller of
        the commit was cancelled, unless the engine had not applied the commit at that time. On a
        remote engine such a commit may go unreported; only reading the records shows it. A hook
        must not block or raise. Returns a function that removes the hook.
        """
        self._hooks.append(hook)
        return lambda: self._hooks.remove(hook)

    def on_change(self, kind: str, hook: Callable[[Put | Delete], None]) -> Callable[[], None]:
        """Call `hook` with every write to partitions of a kind, which is their first word."""
        hooks = self._change_hooks.setdefault(kind, [])
        hooks.append(hook)
        return lambda: hooks.remove(hook)

    def close(self) -> None:
        """Unsubscribe from the engine. Idempotent."""
        self._unhook, unhook = _nothing, self._unhook
        unhook()

    def _incarnation_changed(self, incarnation: Incarnation) -> None:
        self._heads.clear()
        self.meters.count("database_incarnations")

    async def read_time(self) -> bool:
        """Set the clock to the database's clock, or adjust it if it is set.

        Returns whether the database has a clock. Raises the errors of the engine. The first
        transaction calls it, and a node repeats it at intervals.
        """
        for _ in range(1 if self._timed else limits.CLOCK_READS):
            asked_ns = self.clock.elapsed_ns()
            time_ms = await self.engine.now_ms()
            if time_ms is None:
                self._timed = True
                return False
            self.clock.follow(time_ms, asked_ns, at_once=not self._timed)
        self._timed = True
        return True

    async def judge_time(self) -> None:
        """Hold the clock if it is too far ahead of the last recorded time.

        Records that expire by a wrong clock are lost permanently, such as the idempotency keys of
        handled messages. A node therefore calls this before its first transaction.
        """
        [record] = await self.engine.get([LAST_TIME], 0)
        if record is None:
            return
        try:
            last_ms: int = decode(record.value, int, LAST_TIME)
        except OncewardError as error:
            self.alarms.damaged(LAST_TIME, error.message)
            return
        now_ms = self.clock.now_ms()
        if last_ms - now_ms > limits.CLOCK_BEHIND_MS:
            behind = timedelta(seconds=(last_ms - now_ms) // 1_000)
            self.alarms.raise_(
                CLOCK_BEHIND,
                f"the clock shows {_date(now_ms)}, {behind} before the last commit "
                f"({_date(last_ms)}). Records expire and timers fire late. Set the clock and "
                "restart; if it is right, run `onceward server confirm-clock` or call "
                "app.confirm_clock().",
            )
        elif now_ms - last_ms > limits.CLOCK_AHEAD_MS:
            self.clock.hold(last_ms)
            self.clock_held = True
            self.alarms.raise_(
                CLOCK_AHEAD,
                f"the clock shows {_date(now_ms)}, {(now_ms - last_ms) // 86_400_000} days after "
                f"the last commit ({_date(last_ms)}). Time continues from that commit, so records "
                "do not expire and timers do not fire by the clock. If the clock is right, run "
                "`onceward server confirm-clock` or call app.confirm_clock(); otherwise set it.",
            )

    def believe_clock(self) -> int:
        """Continue with the wall clock; return the step in ms."""
        self.clock_held = False
        self.alarms.clear(CLOCK_AHEAD)
        self.alarms.clear(CLOCK_BEHIND)
        return self.clock.adopt() if self.clock.jump_ms > 0 else 0

    async def keep_time(self) -> None:
        """Read the time at intervals until cancelled. Temporary errors of the engine are
        ignored."""
        while True:
            await self.clock.sleep(limits.CLOCK_READ_S)
            try:
                await self.read_time()
            except PASSING:
                pass

    async def run(
        self,
        fn: Callable[[Transaction], Awaitable[T]],
        *,
        line: str | None = None,
        attempts_max: int = limits.TRANSACTION_ATTEMPTS_MAX,
    ) -> T:
        """Run `fn(tx)` until it commits without a conflict; return its result.

        `line` names a queue of callers: those with the same line in this process run in order of
        arrival instead of competing. The next one starts when the commit is visible. `fn` must not
        call `run` with its own line. If the caller is cancelled during the commit, the outcome is
        unknown.

        Raises the exception of `fn` (nothing is written then), `Contention` after `attempts_max`
        conflicts, and the errors of `Engine.commit`.
        """
        if not self._timed:
            await self.read_time()
        end_turn = None if line is None else await self._turn(line)
        try:
            for attempt in range(attempts_max):
                tx = self.begin()
                tx.end_hooks = []
                error: Exception | None = None
                try:
                    try:
                        result = await fn(tx)
                    except (EngineStopped, OutcomeUnknown, Unavailable):
                        raise
                    except Exception as raised:
                        error = raised
                    await self.end(tx, write=error is None, end_turn=end_turn, error=error)
                except Conflict:
                    self.meters.count("conflicts")
                    await self.pause_before(attempt)
                    continue
                except TooLarge as too_large:
                    raise too_large from error
                finally:
                    if tx.session is not None and tx not in self._outliving:
                        tx.session.discard()
                    if tx.end_hooks:
                        self._lost(tx)
                if error is not None:
                    raise error
                return result
        finally:
            if end_turn is not None:
                end_turn()
        raise Contention(
            f"{attempts_max} conflicts in a row: too many concurrent writers of one record; "
            "serialize them with run(fn, line=...) or split the record"
        )

    def begin(self) -> Transaction:
        """Begin a transaction without `run`. Call `end`; on `Conflict`, begin another one."""
        now_ns = self.clock.now_ns()
        tx = Transaction(self.engine, now_ns // 1_000_000, self._heads, -(-now_ns // 1_000_000))
        tx.server_keys = self.server_keys
        return tx

    async def end(
        self,
        tx: Transaction,
        *,
        write: bool = True,
        end_turn: Callable[[], None] | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Commit a transaction, or with `write=False` only validate its reads. `error` is the
        reason not to write.

        Raises `Conflict` if a read has changed; nothing is written then.
        """
        if not write:
            tx.hooks.clear()
            if tx.session is not None:
                await tx.session.rollback()
                if error is not None and tx.session.conflicts(error):
                    raise Conflict(
                        f"the database aborted a statement: {error}; retry the transaction"
                    ) from error
                tx.session = None
        try:
            await self._commit(tx, tx.finish(write=write), end_turn)
        except Conflict:
            for key in tx.seen:
                self._heads.drop(key)
            raise

    async def pause_before(self, attempt: int) -> None:
        """Wait after a number of consecutive conflicts; the pause grows."""
        pause_ms = min(2**attempt - 1, limits.TRANSACTION_PAUSE_MS_MAX)
        await self.clock.sleep(pause_ms * self.ids.fraction() / 1000)

    async def _commit(
        self, tx: Transaction, writes: list[Write], end_turn: Callable[[], None] | None
    ) -> None:
        if not writes and tx.session is None:
            for hook in tx.hooks:
                hook()
            return
        applied: Version | None = None
        number = 0

        def visible(version: Version) -> None:
            nonlocal applied, number
            applied = version
            number = self._applied = self._applied + 1
            if tx.heads_used or self._heads.records:
                self._refresh_heads(tx, writes, version)
            if end_turn is not None:
                end_turn()

        if (
            tx.session is None and type(writes[0]) is Check
        ):  # checks come last, so there are no writes
            await self._validate(writes, tx.now_ms)
            for hook in tx.hooks:
                hook()
            return
        begun_ns = self.clock.elapsed_ns()
        outliving: asyncio.Task[Version] | None = None
        try:
            commit = self.engine.commit if tx.session is None else tx.session.commit
            committing = commit(writes, tx.now_ms, visible)
            if tx.end_hooks and self.engine.shared:
                # The end hooks need its outcome, for example for jobs that it leases.
                outliving = asyncio.create_task(committing, name="onceward-hooked-commit")
                version = await asyncio.shield(outliving)
            else:
                version = await committing
        except EngineStopped:
            self.on_stopped()
            raise
        except OutcomeUnknown:
            tx.outcome_unknown = True
            raise
        except asyncio.CancelledError:
            if outliving is not None:
                self._outliving[tx] = outliving
                outliving.add_done_callback(partial(self._outlived, tx, writes))
            elif applied is not None:
                # The commit continues although its caller was cancelled.
                self._left[number] = tx, Commit(applied, writes, tx.now_ms)
                telling = asyncio.create_task(
                    self._tell_once_durable(number), name="onceward-left-commit"
                )
                self._telling.add(telling)
                telling.add_done_callback(self._telling.discard)
            raise
        self._commit_seconds.observe((self.clock.elapsed_ns() - begun_ns) / 1e9)
        if self._left:
            self._tell_left(number)  # they are durable as well
        self._tell(tx, Commit(version, writes, tx.now_ms))

    def _tell(self, tx: Transaction, commit: Commit) -> None:
        for hook in tx.hooks:
            hook()
        if tx.end_hooks:
            end_hooks, tx.end_hooks = tx.end_hooks, None
            for end_hook in end_hooks:
                end_hook(True)
        for commit_hook in tuple(self._hooks):  # a hook may remove itself
            commit_hook(commit)
        for write in commit.writes:
            if type(write) is not Check:
                kind = write.key[0].partition("#")[0]  # `keys.kind_of`, inlined
                hooks = self._change_hooks.get(kind)
                if hooks:
                    for change_hook in tuple(hooks):
                        change_hook(write)  # type: ignore[arg-type]

    def _outlived(
        self, tx: Transaction, writes: list[Write], committing: "asyncio.Task[Version]"
    ) -> None:
        del self._outliving[tx]
        if committing.cancelled() or (error := committing.exception()) is not None:
            tx.outcome_unknown = committing.cancelled() or isinstance(error, OutcomeUnknown)
            self._lost(tx)
        else:
            self._tell(tx, Commit(committing.result(), writes, tx.now_ms))

    async def finish(self) -> None:
        """Wait for the commits on shared engines whose caller was cancelled."""
        while self._outliving:
            await asyncio.wait(self._outliving.values())

    def _lost(self, tx: Transaction) -> None:
        """Call the end hooks of a transaction that failed."""
        end_hooks = tx.end_hooks
        if tx in self._outliving:
            return
        if end_hooks and not any(tx is left for left, _ in self._left.values()):
            tx.end_hooks = None
            for end_hook in end_hooks:
                end_hook(False)

    def _tell_left(self, last: int) -> None:
        """Call the hooks of abandoned commits up to a number."""
        for number in sorted(self._left):
            if number <= last:
                self._tell(*self._left.pop(number))

    async def _tell_once_durable(self, number: int) -> None:
        ask = 0
        while number in self._left:  # otherwise a later commit has reported it
            _, commit = self._left[number]
            try:
                # Checks wait until all visible commits are durable.
                await self._insist([Check(commit.writes[0].key, ANY)], commit.now_ms)
                self._tell_left(number)
            except OncewardError as error:
                if isinstance(error, EngineStopped) or error.code == "engine_closed":
                    # The storage failed or was closed: the outcome is unknown.
                    self._left.pop(number, None)
                    return
                # Only this task reports the commit, so it repeats the query without a limit.
                await self._pause(ask)
                ask = min(ask + 1, limits.CHECK_ASKS_MAX)

    async def _validate(self, checks: list[Write], now_ms: int) -> None:
        """Verify that all checks held at one moment after the last read.

        If there are more checks than a commit may have, they are split, and the moment is that of
        the first part. An unchanged version was there all the time, because versions are not
        reused. An absent record may have been created and deleted since, so the first part contains
        all checks for absence.
        """
        if len(checks) <= limits.COMMIT_WRITES_MAX:
            await self._insist(checks, now_ms)
            return
        checks = sorted(checks, key=lambda check: check.expect is not ABSENT)
        absent = sum(check.expect is ABSENT for check in checks)
        first = max(absent, limits.COMMIT_WRITES_MAX)  # the engine rejects too many of those
        await self._insist(checks[:first], now_ms)
        for start in range(first, len(checks), limits.COMMIT_WRITES_MAX):
            await self._insist(checks[start : start + limits.COMMIT_WRITES_MAX], now_ms)

    async def _insist(self, checks: list[Write], now_ms: int) -> None:
        """Run checks, and repeat them if the response is lost, which is safe because they change
        nothing.
        """
        for ask in range(limits.CHECK_ASKS_MAX):
            try:
                await self.engine.commit(checks, now_ms)
                return
            except OutcomeUnknown:
                await self._pause(ask)
        raise Unavailable(
            f"the database did not respond in {limits.CHECK_ASKS_MAX} attempts; check the database",
            code="engine_unreachable",
        )

    async def _pause(self, ask: int) -> None:
        pause_ms = min(2**ask, limits.OUTCOME_PAUSE_MS_MAX)
        await self.clock.sleep(pause_ms * (0.5 + self.ids.fraction() / 2) / 1000)

    def _refresh_heads(self, tx: Transaction, writes: list[Write], version: Version) -> None:
        known = self._heads.records
        for write in writes:
            key = write.key
            if type(write) is not Check and (key in tx.heads_used or key in known):
                # Records that expire are those of ended jobs.
                if type(write) is Put and write.expires_at_ms is None:
                    self._heads.put(Record(key, write.value, version, write.expires_at_ms))
                else:
                    self._heads.drop(key)

    async def _turn(self, line: str) -> Callable[[], None]:
        """Wait for the turn in a line; return an idempotent function that ends it."""
        waiting = self._lines.get(line)
        if waiting is None:
            self._lines[line] = deque()
        else:
            mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiting.append(mine)
            try:
                await mine
            except BaseException:
                if mine.done() and not mine.cancelled():
                    self._next_turn(line)
                elif mine in waiting:  # otherwise the line has passed over it already
                    waiting.remove(mine)
                raise
        ended = False

        def end_turn() -> None:
            nonlocal ended
            if not ended:
                ended = True
                self._next_turn(line)

        return end_turn

    def _next_turn(self, line: str) -> None:
        waiting = self._lines[line]
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._lines[line]


def _nothing() -> None:
    pass


def _date(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms after 1970"
