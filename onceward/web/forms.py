"""Fields of forms (application/x-www-form-urlencoded)."""

from collections.abc import Iterator
from urllib.parse import parse_qsl

from onceward import limits
from onceward.errors import BadInput

FORM = "application/x-www-form-urlencoded"


class Form:
    """The fields of a form. Reading a missing or repeated field raises `BadInput`, which becomes a
    problem document."""

    __slots__ = ("_fields",)

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._fields: dict[str, list[str]] = {}
        for name, text in pairs:
            self._fields.setdefault(name, []).append(text)

    def __getitem__(self, name: str) -> str:
        """The value of a field. Raises `BadInput` if it is missing or repeated."""
        if name not in self._fields:
            raise BadInput(
                f"the form lacks the field {name[:100]!a}; send it", code="missing_member"
            )
        first, *others = self._fields[name]
        if others:
            raise BadInput(
                f"the form repeats the field {name[:100]!a}; send it once", code="duplicate_member"
            )
        return first

    def get(self, name: str, default: str = "") -> str:
        """The value of a field, or the default if it is missing. Raises `BadInput` if it is
        repeated."""
        return self[name] if name in self._fields else default

    def all(self, name: str) -> list[str]:
        """All values of a field that can be repeated, in order; empty if it is missing."""
        return list(self._fields.get(name, ()))

    def __contains__(self, name: object) -> bool:
        return name in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"Form({list(self._fields)})"


def pairs_of(raw: bytes, most: int = limits.FORM_FIELDS_MAX) -> list[tuple[str, str]]:
    """The names and values in a form. Raises `BadInput` for text that is not UTF-8, and for too
    many fields."""
    if raw.count(b"&") >= most:
        raise BadInput(f"the form has more than {most} fields; send fewer", code="body_too_large")
    try:
        return parse_qsl(raw.decode(), keep_blank_values=True, errors="strict")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"the form is not UTF-8: {error}; encode it as UTF-8", code="not_text"
        ) from error
