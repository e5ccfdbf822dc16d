"""Declaration of work: idempotency keys, recorded steps, children and events of jobs."""

from onceward.parts import Due, Kind, Part
from onceward.schedule import Accepted, Schedule
from onceward.schedule.children import CHILDREN_DUE, Child, Family, PastChild
from onceward.work import events, steps
from onceward.work.children import FOLD_WRITES, Children
from onceward.work.events import Events
from onceward.work.internal_queues import insist_on_entry
from onceward.work.steps import Steps

PART = Part(
    kinds=(
        Kind("inbox#{xx}#{queue}", "{caller}#{key}", Accepted, "the job of an idempotency key"),
        Kind("job#{slot}", "{id}#steps", Steps, "the recorded steps of a job"),
        Kind("job#{slot}", "{id}#events", Events, "events that a job has not consumed"),
        Kind("family#{slot}", "{id}#{number}", Family, "children that a job created together"),
        Kind("family#{slot}", "{id}#{number}#{index}", Child, "a child, with its result"),
        Kind(
            "children#{slot}",
            "{id}#{number}#{index}#{ended_ms}",
            list[PastChild],
            "children of a job that has ended",
        ),
    ),
    rules=[*steps.RULES, *events.RULES],
    due=(Due(CHILDREN_DUE, Children.fold, FOLD_WRITES, Children.read_to_fold),),
    make=lambda made: Children(made.get(Schedule)),
    guard=insist_on_entry,
)
