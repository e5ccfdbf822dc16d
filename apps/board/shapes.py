"""What is in the room of a board. Each thing about a note stands for itself, so that one can move
it while another writes on it, and both count.

- The list `notes`: a note's id is its item's, and the last one lies on top.
- The maps `places` and `texts`, by the note's id. What stands there for a note that is gone, since
  someone else moved it at that moment, is not shown.
- The presence `people`: who is there, where they point, and the note that they have at hand.
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
