"""What a handler knows about its job, in `Job` and in `SyncJob`."""

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from onceward.job_options import OptionAttributes
from onceward.schedule import Claim

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    Body = DefaultTypeVar("Body", default=Any)  # `Job` alone is `Job[Any]`
else:
    Body = TypeVar("Body")


class JobFields(OptionAttributes, Generic[Body]):
    """What a handler knows about its job."""

    def __init__(self, claim: Claim, body: Body) -> None:
        self.id = claim.id
        """The same for all attempts, so that receivers can deduplicate calls."""
        self.queue = claim.queue
        self.body: Body = body
        self.attempt = claim.attempt
        """1 for the first."""
        self.attempts_max = claim.attempts_max
        """The number of attempts after which a failure is final; 0: no limit."""
        self.options = claim.options
        self.caller = claim.caller
        """The id of the sender: `key:NAME`, `user:NAME` or `app:NAME`; empty: the application."""
        self.due_ms = claim.due_ms
        self.created_ms = claim.created_ms
        self.reason = claim.reason
        """The error of the previous attempt."""
        self.token = claim.token
        self._dedupe = claim.dedupe

    @property
    def key(self) -> str | None:
        """The idempotency key; None without one, or if it is too long to be stored."""
        return self._dedupe.key if self._dedupe else None
