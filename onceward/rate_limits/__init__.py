"""Rate limits: a token bucket for each key, taken from in a transaction.

A bucket holds up to `burst` tokens and is refilled at `rate` tokens per second. A key without a
record has a full bucket: the record expires when the bucket is full again.
"""

from onceward.rate_limits.part import RateLimits, Taken
from onceward.rate_limits.records import Bucket, bucket_key

__all__ = ["Bucket", "RateLimits", "Taken", "bucket_key"]
