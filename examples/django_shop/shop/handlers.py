"""The handlers of the shop, which Onceward finds by the name of this module."""

from dataclasses import dataclass

import onceward
from onceward.integrations.django import jobs


@dataclass
class Payment:
    number: str
    item: str


@jobs.handler("payments", attempts_max=2, retry_first_s=0.05)
def pay(job: onceward.SyncJob[Payment]) -> str:
    """Charge the card in a step, and store the receipt with the end of the job."""
    if job.body.item == "nothing":
        raise onceward.Fail("nothing to pay for")
    receipt = job.step("charge", charge, job.body.item, job.id)
    job.tx.put(("receipts", job.body.number), receipt)
    return receipt


def charge(item: str, request_id: str) -> str:
    """A payment provider, which deduplicates by the id of the request."""
    return f"paid {item}"
