"""Invariants of the records of rate limits, for `onceward db check` and tests."""

from collections.abc import Iterator

from onceward import keys
from onceward.engine.base import Record
from onceward.engine.invariants import Lookup, Rule, value_of
from onceward.rate_limits.records import MICRO, TOKENS_MAX, Bucket, bucket_key


def _bucket(record: Record, get: Lookup) -> Iterator[str]:
    bucket = value_of(record, Bucket)
    if bucket is None or not 0 <= bucket.microtokens <= TOKENS_MAX * MICRO:
        yield "this is not the bucket of a rate limit"
        return
    [*names] = keys.split(record.key[1])
    if len(names) != 1 or bucket_key(names[0]) != record.key:
        yield "the bucket is not where its key is looked up"
    if record.expires_at_ms is None or record.expires_at_ms <= bucket.at_ms:
        yield "the bucket does not expire when it is full"


RULES = [Rule("bucket", _bucket)]
