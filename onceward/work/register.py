"""Declaration of work: idempotency keys and recorded steps."""

from onceward.parts import Kind, Part
from onceward.schedule import Accepted
from onceward.work.internal_queues import insist_on_entry
from onceward.work.steps import RULES, Steps

PART = Part(
    kinds=(
        Kind("inbox#{xx}#{queue}", "{caller}#{key}", Accepted, "the job of an idempotency key"),
        Kind("job#{slot}", "{id}#steps", Steps, "the recorded steps of a job"),
    ),
    rules=RULES,
    guard=insist_on_entry,
)
