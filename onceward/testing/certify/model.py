"""The randomized check: a random history compared with an independent model."""

from typing import Any

from onceward.engine.base import ABSENT, ANY, Check, Delete, Put, Version, Write
from onceward.errors import Conflict
from onceward.testing.certify.lab import Lab, holds, same

_STEPS = 400
_SORTS = ["a", "a#", "a#1", "a$21", "aa", "b", "b#\u00e9", "\uffff", "\U00010000"]


class _Model:
    """A dict with an independent and simple implementation of the rules."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], tuple[bytes, Version, int | None]] = {}
        self.versions: set[Version] = set()

    def see(self, key: tuple[str, str], now_ms: int) -> tuple[bytes, Version, int | None] | None:
        row = self.rows.get(key)
        if row is None or (row[2] is not None and row[2] <= now_ms):
            return None
        return row

    def failing(self, writes: list[Write], now_ms: int) -> list[tuple[str, str]]:
        failing = []
        for write in writes:
            row = self.see(write.key, now_ms)
            if write.expect == ANY:
                fine = True
            elif write.expect == ABSENT:
                fine = row is None
            else:
                fine = row is not None and row[1] == write.expect
            if not fine:
                failing.append(write.key)
        return sorted(failing)

    def apply(self, writes: list[Write], version: Version) -> None:
        for write in writes:
            if isinstance(write, Put):
                self.rows[write.key] = (write.value, version, write.expires_at_ms)
            elif isinstance(write, Delete):
                self.rows.pop(write.key, None)

    def scan(
        self, partition: str, now_ms: int, start: str, end: str | None, limit: int, reverse: bool
    ) -> list[tuple[str, str]]:
        found = [
            key
            for key in self.rows
            if key[0] == partition
            and key[1].encode() >= start.encode()
            and (end is None or key[1].encode() < end.encode())
            and self.see(key, now_ms)
        ]
        found.sort(key=lambda key: key[1].encode(), reverse=reverse)
        return found[:limit]


async def a_random_history_agrees_with_a_model(lab: Lab) -> None:
    """Random commits, gets, scans, sweeps and restarts have the same results as a model."""
    model = _Model()
    now_ms = lab.now_ms
    for step in range(_STEPS):
        now_ms += lab.random.choice([0, 0, 0, 1, 10, 1_000])
        kind = lab.random.choices(["commit", "get", "scan", "sweep", "reopen"], [60, 15, 22, 2, 1])[
            0
        ]
        await _STEP[kind](lab, model, now_ms, f"step {step}")


def _key(lab: Lab) -> tuple[str, str]:
    return lab.key(lab.random.choice(_SORTS), lab.random.choice(["", "", "#", "1"]))


def _write(lab: Lab, model: _Model, now_ms: int, value: bytes, key: tuple[str, str]) -> Write:
    chance = lab.random
    row = model.see(key, now_ms)
    right = ABSENT if row is None else row[1]
    # Mostly right, so that most commits succeed; otherwise anything, including old versions.
    wrong: list[Any] = [ABSENT, *sorted(model.versions, key=str)[:5]]
    expect = chance.choices([ANY, right, chance.choice(wrong)], [10, 10, 1])[0]
    kind = chance.random()
    if kind < 0.55:
        expires_at_ms = chance.choice([None, None, now_ms + chance.randint(0, 2_000)])
        return Put(key, value, expires_at_ms, expect)
    if kind < 0.8:
        return Delete(key, expect)
    return Check(key, expect)


async def _commit(lab: Lab, model: _Model, now_ms: int, what: str) -> None:
    keys = {_key(lab) for _ in range(lab.random.randint(1, 6))}
    value = f'"{what}"'.encode()
    writes = [_write(lab, model, now_ms, value, key) for key in sorted(keys)]
    lab.random.shuffle(writes)
    failing = model.failing(writes, now_ms)
    try:
        version = await lab.engine.commit(writes, now_ms)
    except Conflict as conflict:
        named: Any = conflict.details.get("keys")
        same(sorted(map(tuple, named)), failing, f"{what}: the keys that {writes} conflict on")
        return
    same([], failing, f"{what}: {writes} succeeded; the keys that must conflict")
    if any(isinstance(write, Put) for write in writes):
        holds(version not in model.versions, f"{what}: version {version!r} was given before")
        model.versions.add(version)
    model.apply(writes, version)


async def _get(lab: Lab, model: _Model, now_ms: int, what: str) -> None:
    keys = [_key(lab) for _ in range(lab.random.randint(1, 8))]
    records = await lab.engine.get(keys, now_ms)
    seen = [r and (r.value, r.version, r.expires_at_ms) for r in records]
    same(seen, [model.see(key, now_ms) for key in keys], f"{what}: a get of {keys}")


async def _scan(lab: Lab, model: _Model, now_ms: int, what: str) -> None:
    chance = lab.random
    partition = _key(lab)[0]
    start = chance.choice(["", "", *_SORTS])
    end = chance.choice([None, None, *_SORTS])
    limit, reverse = chance.choice([1, 2, 3, 100]), chance.random() < 0.5
    found = await lab.engine.scan(
        partition, now_ms, start=start, end=end, limit=limit, reverse=reverse
    )
    seen = [(r.key, (r.value, r.version, r.expires_at_ms)) for r in found]
    keys = model.scan(partition, now_ms, start, end, limit, reverse)
    wanted = [(key, model.rows[key]) for key in keys]
    same(seen, wanted, f"{what}: a scan of [{start!r}, {end!r}), {limit=}, {reverse=}")


async def _sweep(lab: Lab, model: _Model, now_ms: int, what: str) -> None:
    swept = await lab.engine.sweep(now_ms, limit=10)
    holds(0 <= swept <= 10, f"{what}: a sweep with limit 10 removed {swept}")


async def _reopen(lab: Lab, model: _Model, now_ms: int, what: str) -> None:
    if lab.can("reopen"):
        await lab.reopen()


_STEP = {"commit": _commit, "get": _get, "scan": _scan, "sweep": _sweep, "reopen": _reopen}

CHECKS = (a_random_history_agrees_with_a_model,)
