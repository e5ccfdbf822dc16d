"""Request bodies: strict JSON within size limits."""

from onceward.strict_json import parse

__all__ = ["parse"]
