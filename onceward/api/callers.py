"""Operations on suspended callers, whose timers and webhook calls are paused."""

import msgspec

from onceward.api.operation import Body, Operation


class SuspendedCaller(msgspec.Struct, omit_defaults=True):
    """A suspended caller."""

    caller: str
    since_ms: int
    by: str
    to: str = ""
    """The caller to which its timers and endpoints were transferred."""


class SuspendedCallers(msgspec.Struct):
    """The suspended callers."""

    callers: list[SuspendedCaller]


class ResumedCaller(msgspec.Struct):
    """A caller whose suspension has ended."""

    caller: str
    timers: int
    """The number of timers that continue."""


class TransferCaller(Body):
    """The receiver of timers and endpoints."""

    to: str
    """The id of a caller, as in `key:billing`."""


class TransferredCaller(msgspec.Struct):
    """What was transferred to another caller."""

    caller: str
    to: str
    timers: int
    endpoints: int
    kept: list[str]
    """Ids of timers and endpoints that were not transferred, because `to` uses the same ids."""


LIST = Operation(
    name="callers.suspended",
    method="GET",
    path="/v1/callers/suspended",
    summary="List suspended callers",
    scope="all",
    response=SuspendedCallers,
    returns="callers",
)

SUSPEND = Operation(
    name="callers.suspend",
    method="POST",
    path="/v1/callers/{id}/suspend",
    summary="Suspend the timers and calls of a caller",
    scope="all",
    response=SuspendedCaller,
    errors=("bad_name",),
)

RESUME = Operation(
    name="callers.resume",
    method="POST",
    path="/v1/callers/{id}/resume",
    summary="Resume a suspended caller",
    scope="all",
    response=ResumedCaller,
    errors=("bad_name",),
)

TRANSFER = Operation(
    name="callers.transfer",
    method="POST",
    path="/v1/callers/{id}/transfer",
    summary="Transfer timers and endpoints to another caller",
    scope="all",
    body=TransferCaller,
    response=TransferredCaller,
    errors=("bad_name",),
)
