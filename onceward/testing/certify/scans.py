"""Checks of scans: order, bounds, limits and exclusions."""

import msgspec

from onceward import keys, limits
from onceward.engine.base import Delete, Put
from onceward.testing.certify.lab import Lab, same

# Sorted as bytes. Locales, UTF-16 and numeric sorting would each order some of them differently.
_ORDERED = [
    "#",
    "$20",
    "10",
    "9",
    "A",
    "Z",
    "_",
    "a",
    "a#",
    "a#b",
    "a#b#c",
    "a$21",
    "a0",
    "aB",
    "aa",
    "ab",
    "b",
    "z",
    "~",
    "\u00e9",
    "\u00ff",
    "\u4e2d",
    "\ue000",
    "\uffff",
    "\U00010000",
    "\U0001f600",
    "\U0010ffff",
]


async def _fill(lab: Lab, sorts: list[str]) -> None:
    mixed = list(sorts)
    lab.random.shuffle(mixed)
    for start in range(0, len(mixed), 10):
        await lab.commit(*(Put(lab.key(sort), b"1") for sort in mixed[start : start + 10]))


async def a_scan_sorts_as_bytes(lab: Lab) -> None:
    """Records are ordered by their sort keys as UTF-8, regardless of the order of puts."""
    await _fill(lab, _ORDERED)
    same(await lab.scan(), _ORDERED, "the order of a scan")
    for index in range(0, len(_ORDERED), 4):
        start = _ORDERED[index]
        same(await lab.scan(start=start), _ORDERED[index:], f"the order of a scan from {start!r}")


async def a_scan_returns_whole_records(lab: Lab) -> None:
    """A scan shows the same keys, values, versions and expiries as a get."""
    await lab.put("a", b'{"a":1}')
    await lab.put("b", b'{"b":[]}', expires_at_ms=lab.now_ms + 60_000)
    same(
        await lab.engine.scan(lab.partition, lab.now_ms),
        await lab.get_many("ab"),
        "what a scan shows, compared with a get",
    )


async def a_scan_keeps_its_bounds(lab: Lab) -> None:
    """`start` is included, `end` is excluded; bounds need not exist or be in order."""
    await _fill(lab, list("bdfh"))
    wanted = {
        ("", None): "bdfh",
        ("b", None): "bdfh",
        ("b#", None): "dfh",
        ("c", None): "dfh",
        ("h", None): "h",
        ("i", None): "",
        ("", "b"): "",
        ("", "d"): "b",
        ("", "z"): "bdfh",
        ("d", "f"): "d",
        ("d", "f#"): "df",
        ("c", "g"): "df",
        ("d", "d"): "",
        ("f", "d"): "",
        ("e", "f"): "",
    }
    for (start, end), sorts in wanted.items():
        for reverse in (False, True):
            seen = await lab.scan(start=start, end=end, reverse=reverse)
            order = sorts[::-1] if reverse else sorts
            same(seen, list(order), f"a scan of [{start!r}, {end!r}), reverse={reverse}")


async def a_scan_finds_what_extends_a_key(lab: Lab) -> None:
    """`keys.below` bounds exactly the extensions of a key; `keys.after` continues behind a key."""
    inside = [keys.join("room", 7), keys.join("room", 7, "a"), keys.join("room", "\U0010ffff")]
    around = [keys.join("roo"), keys.join("room"), keys.join("room!"), keys.join("roomy", 7)]
    await _fill(lab, inside + around)
    start, end = keys.below("room")
    same(await lab.scan(start=start, end=end), inside, "the extensions of a key")
    seen: list[str] = []
    position = ""
    while page := await lab.scan(start=position, limit=2):
        seen += page
        position = keys.after(page[-1])
    same(seen, sorted(inside + around), "all records, scanned two at a time")
    longest = "k" * limits.SORT_BYTES_MAX
    await lab.put(longest)
    same(await lab.scan(start=keys.after(longest), end="l"), [], "behind the longest key")


async def a_scan_stops_at_its_limit(lab: Lab) -> None:
    """A scan returns the first `limit` records, or the last when reversed; fewer only at the
    end."""
    sorts = [f"{i:02}" for i in range(20)]
    await _fill(lab, sorts)
    for limit in (1, 2, 19, 20, 21, limits.SCAN_RECORDS_MAX):
        same(await lab.scan(limit=limit), sorts[:limit], f"a scan with limit {limit}")
        same(
            await lab.scan(limit=limit, reverse=True),
            sorts[::-1][:limit],
            f"a reverse scan with limit {limit}",
        )
    same(await lab.scan(start="05", end="15", limit=3), sorts[5:8], "a bounded scan, limit 3")


async def a_reverse_scan_goes_backwards(lab: Lab) -> None:
    """A reverse scan returns the same records within the same bounds, in reverse order."""
    await _fill(lab, _ORDERED)
    same(await lab.scan(reverse=True), _ORDERED[::-1], "the order of a reverse scan")
    start, end = _ORDERED[5], _ORDERED[15]
    seen = await lab.scan(start=start, end=end, reverse=True, limit=4)
    same(seen, _ORDERED[5:15][::-1][:4], "a reverse scan with bounds and a limit")


async def a_scan_keeps_to_its_partition(lab: Lab) -> None:
    """Scans exclude partitions with similar names, prefixes and extensions."""
    names = ["", "#", "#1", "$", "0", "a", "\U0010ffff"]
    for name in names:
        await lab.commit(Put(lab.key("k" + name, name), b"1"))
    for name in names:
        for reverse in (False, True):
            found = await lab.engine.scan(lab.partition + name, lab.now_ms, reverse=reverse)
            seen = [record.key for record in found]
            same(seen, [lab.key("k" + name, name)], f"a scan of the partition …{name!r}")
    same(await lab.engine.scan(lab.partition + "empty", lab.now_ms), [], "an empty partition")


async def a_scan_follows_changes(lab: Lab) -> None:
    """Scans omit deleted records, show replaced ones once, and show records that are put again."""
    sorts = [f"{i:02}" for i in range(30)]
    await _fill(lab, sorts)
    same(await lab.scan(), sorts, "a scan before the changes")
    there = dict.fromkeys(sorts, b"1")
    for step in range(60):
        sort = lab.random.choice(sorts)
        if lab.random.random() < 0.5:
            await lab.commit(Delete(lab.key(sort)))
            there.pop(sort, None)
        else:
            there[sort] = str(step).encode()
            await lab.put(sort, there[sort])
        start, limit = lab.random.choice(sorts), lab.random.randint(1, 12)
        reverse = step % 2 == 0
        wanted = sorted((s for s in there if s >= start), reverse=reverse)[:limit]
        found = await lab.engine.scan(
            lab.partition, lab.now_ms, start=start, limit=limit, reverse=reverse
        )
        seen = [(record.key[1], record.value) for record in found]
        same(seen, [(s, there[s]) for s in wanted], f"a scan after change {step}")
    for sort in list(there):
        await lab.commit(Delete(lab.key(sort)))
    same(await lab.scan(), [], "a scan after everything was deleted")


async def a_scan_spans_pages(lab: Lab) -> None:
    """A scan may exceed the page size of the storage; the default limit applies."""
    count = 2 * limits.SCAN_RECORDS_DEFAULT + 100
    sorts = [f"{i:05}" for i in range(count)]
    value = msgspec.json.encode("x" * 700)
    mixed = list(sorts)
    lab.random.shuffle(mixed)
    for start in range(0, count, 100):
        await lab.commit(*(Put(lab.key(sort), value) for sort in mixed[start : start + 100]))
    whole = await lab.engine.scan(lab.partition, lab.now_ms, limit=count)
    same([r.key[1] for r in whole], sorts, "a scan of many pages")
    same({r.value for r in whole}, {value}, "the values in a scan of many pages")
    same(await lab.scan(), sorts[: limits.SCAN_RECORDS_DEFAULT], "a scan without a limit")
    backwards = await lab.scan(limit=limits.SCAN_RECORDS_MAX, reverse=True)
    same(backwards, sorts[::-1], "a reverse scan of many pages")


CHECKS = (
    a_scan_sorts_as_bytes,
    a_scan_returns_whole_records,
    a_scan_keeps_its_bounds,
    a_scan_finds_what_extends_a_key,
    a_scan_stops_at_its_limit,
    a_reverse_scan_goes_backwards,
    a_scan_keeps_to_its_partition,
    a_scan_follows_changes,
    a_scan_spans_pages,
)
