"""Declaration of outboxes: the record of the node that reads each one."""

from onceward.parts import Kind, Part
from onceward.sql.records import Drain, drain_key

PART = Part(
    kinds=(Kind("outbox", "{name}", Drain, "the lease of an outbox", drain_key("db/shop")),),
)
