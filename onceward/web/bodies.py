"""The bodies of requests: JSON, taken strictly."""

from onceward.strict import parse

__all__ = ["parse"]
