"""Checks of single commits and gets: atomicity, versions and read-your-writes."""

import sys

import msgspec

from onceward import limits
from onceward.engine.base import ABSENT, ANY, Check, Delete, Expectation, Put, Version, Write
from onceward.errors import Conflict
from onceward.testing.certify.lab import Lab, holds, refused, same, version_of

# The characters of keys made by `keys.join`: those below the separator are escaped.
_KEY_CHARACTERS = [chr(c) for c in range(0x23, sys.maxunicode + 1) if not 0xD800 <= c <= 0xDFFF]


async def a_put_can_be_read_back(lab: Lab) -> None:
    """A put shows its key, value, expiry and version; a second put replaces it."""
    expires_at_ms = lab.now_ms + 60_000
    version = await lab.put("a", b'{"n":1}', expires_at_ms=expires_at_ms)
    record = await lab.get("a")
    same(version_of(record), version, "the version of a new record")
    assert record is not None
    same(record.key, lab.key("a"), "the key of a new record")
    same(record.value, b'{"n":1}', "the value of a new record")
    same(record.expires_at_ms, expires_at_ms, "the expiry of a new record")
    await lab.put("a", b"2")
    same(await lab.values(["a"]), [b"2"], "the value after a second put")


async def a_delete_removes(lab: Lab) -> None:
    """A deleted record is absent. Deleting an absent record succeeds. The key can be put again."""
    await lab.commit(Delete(lab.key("never")))
    await lab.put("a")
    await lab.put("b")
    await lab.commit(Delete(lab.key("a")))
    same(await lab.values(["a", "b"]), [None, b"1"], "after deleting the first of two")
    await lab.commit(Delete(lab.key("a")))
    await lab.put("a", b"2")
    same(await lab.values(["a"]), [b"2"], "after deleting and putting again")


async def every_character_survives(lab: Lab) -> None:
    """Values can contain all of Unicode as JSON text, keys all results of `keys.join`."""
    texts = [
        "".join(_KEY_CHARACTERS[start : start + 250])
        for start in range(0, len(_KEY_CHARACTERS), 250)
    ]
    puts = [Put(lab.key(text), msgspec.json.encode(text)) for text in texts]
    puts.append(Put(lab.key("control", "#"), msgspec.json.encode("".join(map(chr, range(0x23))))))
    puts.append(Put(lab.key("e\u0301-\u00e9", "#"), '"e\u0301 \u00e9"'.encode()))
    for start in range(0, len(puts), 100):
        some = puts[start : start + 100]
        await lab.commit(*some)
        seen = await lab.engine.get([put.key for put in some], lab.now_ms)
        for put, record in zip(some, seen, strict=True):
            same(record and (record.key, record.value), (put.key, put.value), "a Unicode record")
    same(await lab.scan(limit=len(texts)), texts, "the keys that a scan finds")


async def the_largest_record_survives(lab: Lab) -> None:
    """A record with the largest value and keys can be put, read, scanned and deleted."""
    sort = "é" * (limits.SORT_BYTES_MAX // 2)
    partition = lab.partition + "p" * (limits.PARTITION_BYTES_MAX - len(lab.partition.encode()))
    value = msgspec.json.encode("v" * (limits.VALUE_BYTES_MAX - 2))
    key = (partition, sort)
    await lab.commit(Put(key, value))
    [record] = await lab.engine.get([key], lab.now_ms)
    same(record and record.value, value, "the largest value by get")
    found = await lab.engine.scan(partition, lab.now_ms)
    same([r.value for r in found], [value], "the largest value by scan")
    await lab.commit(Delete(key))
    same(await lab.engine.get([key], lab.now_ms), [None], "the largest record after a delete")


async def get_answers_in_the_order_asked(lab: Lab) -> None:
    """A get returns one result per requested key, in that order, None for absent records."""
    for sort in "abc":
        await lab.put(sort, f'"{sort}"'.encode())
    wanted = [b'"c"', None, b'"a"', b'"b"', b'"a"', None, b'"c"']
    seen = await lab.values(["c", "no", "a", "b", "a", "no", "c"])
    same(seen, wanted, "the answers to a get of c, no, a, b, a, no, c")
    same(await lab.values([]), [], "the answer to a get of nothing")
    many = [f"{i:03}" for i in range(limits.GET_KEYS_MAX)]
    await lab.commit(*(Put(lab.key(sort), f'"{sort}"'.encode()) for sort in many))
    seen = await lab.values(many[::-1])
    same(seen, [f'"{sort}"'.encode() for sort in many[::-1]], "the largest get, backwards")


async def partitions_are_apart(lab: Lab) -> None:
    """Equal sort keys in different partitions are different records."""
    apart = ["", "#", "#1", "1", "%", "A", "a"]
    for index, name in enumerate(apart):
        await lab.commit(Put(lab.key("k", name), str(index).encode()))
    await lab.commit(Put(lab.key("1k"), b'"other"'))
    await lab.commit(Delete(lab.key("k", "1")))
    for index, name in enumerate(apart):
        [record] = await lab.engine.get([lab.key("k", name)], lab.now_ms)
        wanted = None if name == "1" else str(index).encode()
        same(record and record.value, wanted, f"the record of the partition …{name!r}")
    same(await lab.values(["1k"]), [b'"other"'], "a record whose key reads the same when glued")


async def a_failed_expectation_applies_nothing(lab: Lab) -> None:
    """If one expectation fails, at any position among many writes, nothing is changed."""
    kept = [f"kept{i}" for i in range(3)]
    for sort in kept:
        await lab.put(sort, b'"old"')
    version = version_of(await lab.get("kept0"))
    await lab.put("kept0", b'"old"')  # so that `version` is outdated
    failing: list[Write] = [
        Put(lab.key("kept0"), b'"new"', None, ABSENT),
        Put(lab.key("kept0"), b'"new"', None, version),
        Delete(lab.key("kept0"), version),
        Delete(lab.key("none"), version),
        Check(lab.key("kept0"), ABSENT),
        Check(lab.key("kept0"), version),
        Check(lab.key("none"), version),
    ]
    good: list[Write] = [
        Put(lab.key("fresh"), b'"new"', None, ABSENT),
        Put(lab.key("kept1"), b'"new"'),
        Delete(lab.key("kept2")),
    ]
    before = await lab.get_many([*kept, "fresh", "none"])
    for write in failing:
        for place in range(len(good) + 1):
            what = f"{write} in place {place} of a commit"
            with refused(Conflict, "conflict", what):
                await lab.commit(*good[:place], write, *good[place:])
            after = await lab.get_many([*kept, "fresh", "none"])
            same(after, before, f"what is there after {what} failed")
    same(await lab.scan(), sorted(kept), "what a scan finds after all these failures")


async def expectations_hold_or_conflict(lab: Lab) -> None:
    """Put, delete and check with any, absent and version, on existing and absent records."""
    for place, there in (("there", True), ("none", False), ("deleted", False)):
        for kind in (Put, Delete, Check):
            cases: list[tuple[str, bool]] = [("any", True), ("absent", not there)]
            cases += [("version", there), ("old", False)]
            for name, right in cases:
                key = lab.key(f"{place}-{kind.__name__}-{name}")
                old = await lab.commit(Put(key, b'"old"'))
                current = await lab.commit(Put(key, b'"current"'))
                if not there:
                    await lab.commit(Delete(key))
                words: dict[str, Expectation] = {
                    "any": ANY,
                    "absent": ABSENT,
                    "version": current,
                    "old": old,
                }
                expect = words[name]
                write = {
                    Put: Put(key, b'"new"', None, expect),
                    Delete: Delete(key, expect),
                    Check: Check(key, expect),
                }[kind]
                what = f"a {kind.__name__.lower()} expecting {name} of a record that is {place}"
                if right:
                    await lab.commit(write)
                else:
                    with refused(Conflict, "conflict", what):
                        await lab.commit(write)
                untouched = b'"current"' if there else None
                changed = {Put: b'"new"', Delete: None, Check: untouched}[kind]
                [record] = await lab.engine.get([key], lab.now_ms)
                same(record and record.value, changed if right else untouched, f"after {what}")


async def an_expectation_guards_its_own_key(lab: Lab) -> None:
    """The version of another record, or of the same sort key elsewhere, is a conflict."""
    here = await lab.put("a")
    there = await lab.commit(Put(lab.key("a", "other"), b"1"))
    with refused(Conflict, "conflict", "the version of another partition's record"):
        await lab.put("a", expect=there)
    with refused(Conflict, "conflict", "the version of another record"):
        await lab.commit(Check(lab.key("b"), here))
    await lab.put("a", b"2", expect=here)


async def conflict_names_the_failing_keys(lab: Lab) -> None:
    """A Conflict lists exactly the keys whose expectation failed, all of them."""
    versions = {sort: await lab.put(sort) for sort in "abcde"}
    await lab.put("b", b"2")
    await lab.put("d", b"2")
    with refused(Conflict, "conflict", "a commit with three failing expectations") as refusal:
        await lab.commit(
            Put(lab.key("a"), b"3", None, versions["a"]),
            Put(lab.key("b"), b"3", None, versions["b"]),
            Check(lab.key("c"), versions["c"]),
            Check(lab.key("d"), versions["d"]),
            Delete(lab.key("e"), ABSENT),
            Delete(lab.key("f"), ABSENT),
            Put(lab.key("g"), b"3"),
        )
    named = refusal.error.details.get("keys")
    holds(isinstance(named, list), f"a Conflict has details['keys'] = {named!r}, no list of keys")
    assert isinstance(named, list)
    wanted = [lab.key(sort) for sort in "bde"]
    same(sorted(tuple(key) for key in named), wanted, "the keys that a Conflict names")


async def one_commit_has_one_version(lab: Lab) -> None:
    """All puts of a commit have the version that it returned; no other commit has it."""
    versions: list[Version] = []
    for round_ in range(3):
        puts = [Put(lab.key(sort), str(round_).encode()) for sort in "abc"]
        versions.append(await lab.commit(*puts))
        seen = [version_of(record) for record in await lab.get_many("abc")]
        same(seen, [versions[-1]] * 3, "the versions of the records of one commit")
        found = await lab.engine.scan(lab.partition, lab.now_ms)
        same([r.version for r in found], seen, "the versions as a scan shows them")
        versions.append(await lab.commit(Put(lab.key("d", "other"), b"1")))
    same(len(set(versions)), len(versions), f"how many different versions in {versions}")


async def versions_are_never_reused(lab: Lab) -> None:
    """After a delete and a new put, even of the same value, an old version is a conflict."""
    versions: list[Version] = []
    for _ in range(5):
        versions.append(await lab.put("a", expect=ABSENT))
        versions.append(await lab.put("a", expect=versions[-1]))
        await lab.commit(Delete(lab.key("a"), versions[-1]))
    same(len(set(versions)), len(versions), f"how many different versions in {versions}")
    current = await lab.put("a")
    for version in versions:
        with refused(Conflict, "conflict", f"version {version!r} of a record put again since"):
            await lab.put("a", b"2", expect=version)
    await lab.put("a", b"2", expect=current)


async def a_commit_of_checks_changes_nothing(lab: Lab) -> None:
    """Commits with only checks succeed or conflict, and leave values and versions unchanged."""
    versions = {sort: await lab.put(sort) for sort in "ab"}
    before = await lab.get_many("abc")
    right = [Check(lab.key(sort), version) for sort, version in versions.items()]
    for _ in range(2):
        await lab.commit(*right, Check(lab.key("c"), ABSENT))
        await lab.commit(Check(lab.key("c"), ANY), Check(lab.key("a"), ANY))
    with refused(Conflict, "conflict", "a commit with one wrong check"):
        await lab.commit(*right, Check(lab.key("c"), versions["a"]))
    same(await lab.get_many("abc"), before, "the records after commits of checks")


async def a_check_guards_the_other_writes(lab: Lab) -> None:
    """A write without an expectation is not applied if a check in the same commit fails."""
    version = await lab.put("head")
    await lab.commit(Check(lab.key("head"), version), Put(lab.key("a"), b"1"))
    await lab.put("head", b"2")
    with refused(Conflict, "conflict", "a put beside a check of an old version"):
        await lab.commit(Put(lab.key("a"), b"2"), Check(lab.key("head"), version))
    with refused(Conflict, "conflict", "a delete beside a check that a record is absent"):
        await lab.commit(Check(lab.key("head"), ABSENT), Delete(lab.key("a")))
    same(await lab.values(["a"]), [b"1"], "the record that a failing check guards")


CHECKS = (
    a_put_can_be_read_back,
    a_delete_removes,
    every_character_survives,
    the_largest_record_survives,
    get_answers_in_the_order_asked,
    partitions_are_apart,
    a_failed_expectation_applies_nothing,
    expectations_hold_or_conflict,
    an_expectation_guards_its_own_key,
    conflict_names_the_failing_keys,
    one_commit_has_one_version,
    versions_are_never_reused,
    a_commit_of_checks_changes_nothing,
    a_check_guards_the_other_writes,
)
