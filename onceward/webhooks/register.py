"""Declaration of webhooks: endpoints and suspended callers."""

from onceward.parts import Kind, Part
from onceward.webhooks.endpoints import Endpoint
from onceward.webhooks.suspensions import Suspension

PART = Part(
    kinds=(
        Kind("endpoint", "{caller}#{id}", Endpoint, "a webhook endpoint and its secrets"),
        Kind("suspended", "{caller}", Suspension, "the suspension of a caller"),
    ),
)
