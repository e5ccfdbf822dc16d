"""Declaration of work: idempotency keys, recorded steps, children, events and output of jobs."""

from onceward.keys import Key
from onceward.parts import Due, Kind, Part
from onceward.schedule import Accepted, Schedule
from onceward.schedule.children import CHILDREN_DUE, Child, Family, PastChild
from onceward.schedule.records import OUTPUT_DUE
from onceward.store.transaction import Transaction
from onceward.work import events, output, steps
from onceward.work.children import FOLD_WRITES, Children
from onceward.work.event_links import LinkUse
from onceward.work.events import Events
from onceward.work.internal_queues import insist_on_entry
from onceward.work.output import Output, Streamed
from onceward.work.steps import Steps


class Entries(Children):
    """Acts on due entries of children, and of output."""

    async def forget(self, tx: Transaction, entry: Key) -> None:
        """Remove the output of a job with the job."""
        await output.forget(tx, entry)


PART = Part(
    kinds=(
        Kind("inbox#{xx}#{queue}", "{caller}#{key}", Accepted, "the job of an idempotency key"),
        Kind("job#{slot}", "{id}#steps", Steps, "the recorded steps of a job"),
        Kind("job#{slot}", "{id}#events", Events, "events that a job has not consumed"),
        Kind("job#{slot}", "{id}#output", Output, "the progress of a job, and its last chunks"),
        Kind("output#{slot}", "{id}#{seq}", list[Streamed], "chunks of the stream of a job"),
        Kind("eventlink", "{id}", LinkUse, "a link for an event that was used"),
        Kind("family#{slot}", "{id}#{number}", Family, "children that a job created together"),
        Kind("family#{slot}", "{id}#{number}#{index}", Child, "a child, with its result"),
        Kind(
            "children#{slot}",
            "{id}#{number}#{index}#{ended_ms}",
            list[PastChild],
            "children of a job that has ended",
        ),
    ),
    rules=[*steps.RULES, *events.RULES, *output.RULES],
    due=(
        Due(CHILDREN_DUE, Children.fold, FOLD_WRITES, Children.read_to_fold),
        Due(OUTPUT_DUE, Entries.forget, output.FORGET_WRITES),
    ),
    make=lambda made: Entries(made.get(Schedule)),
    guard=insist_on_entry,
)
