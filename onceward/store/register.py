"""Declaration of the store: records of the database as a whole and of applications."""

from typing import Any

from onceward.parts import Kind, Part
from onceward.store.format import Config, Format

PART = Part(
    kinds=(
        Kind("clock", "last", int, "the last recorded time of a node"),
        Kind("config", "schedule", Config, "the number of slots, chosen at creation"),
        Kind("config", "format", Format, "the version of the layout of records"),
        Kind("u#{partition}", "{sort key}", Any, "a record of the application"),
    ),
)
