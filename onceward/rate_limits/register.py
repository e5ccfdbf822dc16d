"""Declaration of rate limits: the kind of records, and `app.limits`."""

from onceward.parts import Attribute, Kind, Part
from onceward.rate_limits import Bucket, RateLimits, bucket_key
from onceward.rate_limits.invariants import RULES

PART = Part(
    kinds=(Kind("bucket#{xx}", "{key}", Bucket, "the bucket of a rate limit", bucket_key("a#1")),),
    rules=RULES,
    make=lambda made: RateLimits(),
    attribute=Attribute("limits", RateLimits),
)
