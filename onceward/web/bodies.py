"""The bodies of requests: JSON, taken strictly."""

from onceward.strict_json import parse

__all__ = ["parse"]
