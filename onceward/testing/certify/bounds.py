"""Checks of limits: values at a limit are accepted, values beyond it rejected."""

import msgspec

from onceward import limits
from onceward.engine.base import ABSENT, Check, Delete, Put, Write
from onceward.errors import BadInput, OncewardError, TooLarge
from onceward.testing.certify.lab import Lab, Violation, refused, same


def _value(size_bytes: int) -> bytes:
    return msgspec.json.encode("v" * (size_bytes - 2))


async def _refused_whole(
    lab: Lab, kind: type[OncewardError], code: str, what: str, *writes: Write
) -> None:
    """The commit is rejected, alone and together with a valid write, which is not applied
    either."""
    with refused(kind, code, what):
        await lab.commit(*writes)
    if len(writes) < limits.COMMIT_WRITES_MAX:
        for order in (1, -1):
            with refused(kind, code, f"{what}, beside a good write"):
                await lab.commit(*[Put(lab.key("good"), b"1"), *writes][::order])
    same(await lab.scan(), [], f"what is there after {what} was refused")
    # The engine is still usable.
    await lab.put("probe")
    same(await lab.values(["probe"]), [b"1"], f"a put after {what} was refused")
    await lab.commit(Delete(lab.key("probe")))


async def a_commit_has_so_many_writes(lab: Lab) -> None:
    """A commit has 1 to 100 writes, including checks."""
    most = limits.COMMIT_WRITES_MAX
    puts = [Put(lab.key(f"{i:04}"), b"1") for i in range(most + 1)]
    checks = [Check(put.key, ABSENT) for put in puts]
    await _refused_whole(lab, TooLarge, "commit_too_large", "a commit of 101 puts", *puts)
    await _refused_whole(
        lab, TooLarge, "commit_too_large", "a commit of 50 puts and 51 checks",
        *puts[:50], *checks[50:],
    )  # fmt: skip
    with refused(TooLarge, "commit_too_large", "a commit of nothing"):
        await lab.commit()
    await lab.commit(*puts[:most])
    same(len(await lab.scan()), most, "the records of a commit of 100 puts")
    await lab.commit(*(Delete(put.key) for put in puts[:most]))
    same(await lab.scan(), [], "the records after a commit of 100 deletes")


async def a_commit_has_so_many_bytes(lab: Lab) -> None:
    """A commit has at most 4,000,000 bytes of keys and values."""
    puts = [Put(lab.key(f"{i:02}"), _value(limits.VALUE_BYTES_MAX)) for i in range(10)]
    size_bytes = sum(len("".join(p.key).encode()) + len(p.value) for p in puts)
    last = lab.key("last")
    left_bytes = limits.COMMIT_BYTES_MAX - size_bytes - len("".join(last).encode())
    over = Put(last, _value(left_bytes + 1))
    await _refused_whole(
        lab, TooLarge, "commit_too_large", "a commit of one byte too much", *puts, over
    )
    full = Put(last, _value(left_bytes))
    await lab.commit(*puts, full)
    found = await lab.engine.scan(lab.partition, lab.now_ms)
    same([r.value for r in found], [p.value for p in [*puts, full]], "the largest commit's values")


async def a_value_has_so_many_bytes(lab: Lab) -> None:
    """A value has 1 to 390,000 bytes."""
    over = Put(lab.key("a"), _value(limits.VALUE_BYTES_MAX + 1))
    await _refused_whole(lab, TooLarge, "value_too_large", "a value of one byte too much", over)
    empty = Put(lab.key("a"), b"")
    await _refused_whole(lab, BadInput, "bad_value", "an empty value", empty)


async def a_key_has_so_many_bytes(lab: Lab) -> None:
    """A partition has 1 to 2,048 bytes, a sort key 1 to 1,024, no NUL or lone surrogate."""
    long = "\u00e9" * (limits.PARTITION_BYTES_MAX // 2) + "p"
    bad = {
        "a partition of one byte too much": (long, "k"),
        "an empty partition": ("", "k"),
        "a partition with a lone surrogate": (lab.partition + "\ud800", "k"),
        "a sort key of one byte too much": lab.key("\u00e9" * (limits.SORT_BYTES_MAX // 2) + "k"),
        "an empty sort key": lab.key(""),
        "a partition with a NUL": (lab.partition + "\0", "k"),
        "a sort key with a NUL": lab.key("\0k"),
        "a sort key with a lone surrogate": lab.key("k\udfff"),
    }
    for what, key in bad.items():
        for write in (Put(key, b"1"), Delete(key), Check(key, ABSENT)):
            name = f"a {type(write).__name__.lower()} of {what}"
            await _refused_whole(lab, BadInput, "bad_key", name, write)


async def a_bad_key_can_be_asked_for(lab: Lab) -> None:
    """A read of an invalid key finds nothing or is rejected, and has no other effect."""
    for key in (lab.key(""), ("", "k"), lab.key("\ud800"), lab.key("\0"), lab.key("k" * 2_000)):
        try:
            seen = await lab.engine.get([key], lab.now_ms)
        except BadInput as error:
            same(error.code, "bad_key", f"the code for a get of {key}")
        except Exception as error:
            raise Violation(f"a get of {key} raised {error!r}") from error
        else:
            same(seen, [None], f"a get of {key}")
    await lab.put("k")
    same(await lab.values(["k"]), [b"1"], "a record after reads of bad keys")


async def a_commit_has_one_write_for_each_key(lab: Lab) -> None:
    """Two writes of one key in a commit are rejected, of any kind."""
    key = lab.key("a")
    writes: list[Write] = [Put(key, b"1"), Put(key, b"2"), Delete(key), Check(key, ABSENT)]
    for first in writes:
        for second in writes:
            what = f"{type(first).__name__} and {type(second).__name__} of one key"
            await _refused_whole(lab, BadInput, "bad_request", what, first, second)


async def a_read_has_so_many_records(lab: Lab) -> None:
    """A get has at most 100 keys, a scan a limit of 1 to 10,000."""
    await lab.put("a")
    keys = [lab.key("a")] * (limits.GET_KEYS_MAX + 1)
    with refused(TooLarge, "commit_too_large", "a get of 101 keys"):
        await lab.engine.get(keys, lab.now_ms)
    seen = await lab.engine.get(keys[:-1], lab.now_ms)
    same({r and r.value for r in seen}, {b"1"}, "a get of one key 100 times")
    for limit in (0, -1, limits.SCAN_RECORDS_MAX + 1):
        with refused(BadInput, "bad_request", f"a scan with limit {limit}"):
            await lab.scan(limit=limit)
    same(await lab.scan(limit=limits.SCAN_RECORDS_MAX), ["a"], "a scan with the largest limit")


CHECKS = (
    a_commit_has_so_many_writes,
    a_commit_has_so_many_bytes,
    a_value_has_so_many_bytes,
    a_key_has_so_many_bytes,
    a_bad_key_can_be_asked_for,
    a_commit_has_one_write_for_each_key,
    a_read_has_so_many_records,
)
