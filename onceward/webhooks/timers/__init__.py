"""Timers: webhook calls and jobs at a given time, once or recurring.

A firing sends a job in the same commit as the timer's new state. The job goes to the timer's queue,
or to the webhook queue if the timer has a URL. So each firing is exactly one job with a permanent
id, regardless of restarts, other nodes and clock changes.
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
