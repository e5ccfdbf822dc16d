"""The schema of a board's room. Each property of a note is stored separately, so that users can
move it and write on it at the same time.

- The list `notes`: a note's id is its item's, and the last one is on top.
- The maps `places` and `texts`, by the note's id. Entries of removed notes, which another user
  moved at the same moment, are not shown.
- The presence `people`: each user's name, cursor, and the note that is being dragged.
"""

from apps.board import limits
from onceward import Schemas
from onceward import limits as core_limits

COLOURS = ("lemon", "peach", "rose", "lilac", "sky", "mint")

_FAR = limits.PLACE_MAX
_COORDINATE = {"type": "number", "minimum": -_FAR, "maximum": _FAR}
_NAME = {"type": "string", "minLength": 1, "maxLength": limits.NAME_CHARS_MAX}

SHAPES = Schemas(
    lists={
        "notes": {
            "type": "object",
            "properties": {"colour": {"enum": list(COLOURS)}, "by": _NAME},
            "required": ["colour", "by"],
            "additionalProperties": False,
        }
    },
    maps={
        "places": {
            "type": "object",
            "properties": {"x": _COORDINATE, "y": _COORDINATE},
            "required": ["x", "y"],
            "additionalProperties": False,
        },
        "texts": {"type": "string", "maxLength": limits.TEXT_CHARS_MAX},
    },
    presences={
        "people": {
            "type": "object",
            "properties": {
                "name": _NAME,
                "x": _COORDINATE,
                "y": _COORDINATE,
                "note": {"type": "string", "maxLength": core_limits.ROOM_KEY_BYTES_MAX},
                "writing": {"type": "boolean"},
            },
            "required": ["name"],
            "additionalProperties": False,
        }
    },
)
