"""The shop: an order becomes a parcel in one commit. Workers deliver it to the carrier over
HTTP."""

from typing import Any

from apps.demo.settings import ORDERS, PARCELS
from onceward import App, Job

_ATTEMPTS = 50
_RETRY_S = 0.3
_NAME_CHARS_MAX = 100


def open_shop(app: App) -> None:
    """Add the order queue to an application, before it starts."""
    quick: dict[str, Any] = {"attempts_max": _ATTEMPTS}
    quick |= {"retry_first_s": _RETRY_S, "retry_max_s": _RETRY_S}
    app.queue(PARCELS, internal=True, remote_work=True, **quick)

    @app.handler(ORDERS, lease_s=2.0, **quick)
    async def sell(job: Job) -> dict[str, str]:
        """Send the parcel in the same commit that completes the order. If an order were processed
        twice, the carrier would receive two parcels."""
        told = job.body if isinstance(job.body, dict) else {}
        order = str(told.get("order") or job.id)[:_NAME_CHARS_MAX]
        parcel = (await job.send(PARCELS, {"order": order})).id
        return {"order": order, "parcel": parcel}
