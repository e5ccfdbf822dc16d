"""Declaration of timers: kinds of records and due entries."""

from onceward.parts import Due, Kind, Part
from onceward.schedule import Schedule
from onceward.webhooks.timers import FIRE_WRITES, TIMER_DUE, Timer, TimerTable
from onceward.webhooks.timers.firings import Fired, Resent
from onceward.webhooks.timers.invariants import RULES

PART = Part(
    kinds=(
        Kind("timer#{slot}", "{caller}#{id}", Timer, "a timer and its last firing"),
        Kind("firing#{caller}#{timer}", "{job}", Fired, "a firing of a recurring timer"),
        Kind("delivery#{caller}#{endpoint}", "{job}", Fired, "a call of an endpoint"),
        Kind("resent#{caller}", "{firing}#{key}", Resent, "the job of a firing that was resent"),
    ),
    rules=RULES,
    due=(Due(TIMER_DUE, TimerTable.fire, FIRE_WRITES, TimerTable.read_to_fire),),
    make=lambda made: TimerTable(made.get(Schedule)),
)
