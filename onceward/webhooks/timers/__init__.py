"""Timers: webhook calls and jobs at a given time, once or recurring.

When its time comes a timer fires: it sends a job, in one commit with its own new state. The
job goes to the queue that the timer names or, where it names a URL, to the queue of webhooks.
So a firing is one job with one id for ever, whatever restarts, other nodes and clocks do.
"""

from onceward.webhooks.timers.part import TimerTable
from onceward.webhooks.timers.records import (
    FIRE_WRITES,
    TIMER_DUE,
    WEBHOOKS,
    Call,
    Send,
    Spec,
    Target,
    Timer,
    View,
    Webhook,
    encrypt_headers,
    id_for,
    open_headers,
    timer_key,
    timer_partition,
)

__all__ = [
    "FIRE_WRITES",
    "TIMER_DUE",
    "WEBHOOKS",
    "Call",
    "Send",
    "Spec",
    "Target",
    "Timer",
    "TimerTable",
    "View",
    "Webhook",
    "encrypt_headers",
    "id_for",
    "open_headers",
    "timer_key",
    "timer_partition",
]
