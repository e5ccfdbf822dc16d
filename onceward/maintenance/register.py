"""Declaration of maintenance: records about server keys and the health of nodes."""

from onceward.maintenance.key_source import KeyRecord
from onceward.parts import Kind, Part

PART = Part(
    kinds=(
        Kind("config", "server_key", KeyRecord, "the check values of the server keys in use"),
        Kind("probe", "{application}", int, "the time of the last health probe of a node"),
    ),
)
