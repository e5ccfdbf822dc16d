"""Synchronous classes. Written by `make generate` from `onceward.client.operations.endpoints`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from onceward.api import endpoints as api
from onceward.api.retries import RetryPolicy
from onceward.api.timers import Timer
from onceward.client.operations.endpoints import EndpointsOperations as AsyncEndpointsOperations
from onceward.sync.bridge import Facade


class EndpointsOperations(Facade[AsyncEndpointsOperations]):
    """Operations on endpoints: webhook receivers and their secrets."""

    def create(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        description: str = "",
        disabled: bool = False,
        when_disabled: api.WhenDisabled = "fail",
        retry: RetryPolicy | Mapping[str, Any] | None = None,
        secret: str | None = None,
        id: str | None = None,
    ) -> api.CreatedEndpoint:
        """Create an endpoint."""
        return self._portal.run(
            self._target.create(
                url,
                headers=headers,
                description=description,
                disabled=disabled,
                when_disabled=when_disabled,
                retry=retry,
                secret=secret,
                id=id,
            )
        )

    def list(
        self, *, after: str = "", limit: int = 100, everyone: bool = False
    ) -> api.EndpointPage:
        """List your endpoints, or those of all callers."""
        return self._portal.run(self._target.list(after=after, limit=limit, everyone=everyone))

    def iterate(
        self, *, after: str = "", limit: int = 100, everyone: bool = False
    ) -> Iterator[api.Endpoint]:
        """Iterate over the entries of all pages of `list`."""
        return self._portal.iterate(
            self._target.iterate(after=after, limit=limit, everyone=everyone)
        )

    def get(self, id: str, *, secret: bool = False) -> api.Endpoint:
        """Show an endpoint."""
        return self._portal.run(self._target.get(id, secret=secret))

    def put(
        self,
        id: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        description: str = "",
        disabled: bool = False,
        when_disabled: api.WhenDisabled = "fail",
        retry: RetryPolicy | Mapping[str, Any] | None = None,
        secret: str | None = None,
    ) -> api.Endpoint:
        """Create or replace an endpoint, without its secrets."""
        return self._portal.run(
            self._target.put(
                id,
                url,
                headers=headers,
                description=description,
                disabled=disabled,
                when_disabled=when_disabled,
                retry=retry,
                secret=secret,
            )
        )

    def update(
        self,
        id: str,
        *,
        url: str | UnsetType = UNSET,
        headers: Mapping[str, str] | UnsetType = UNSET,
        description: str | UnsetType = UNSET,
        disabled: bool | UnsetType = UNSET,
        when_disabled: api.WhenDisabled | UnsetType = UNSET,
        retry: RetryPolicy | Mapping[str, Any] | UnsetType | None = UNSET,
    ) -> api.Endpoint:
        """Change an endpoint."""
        return self._portal.run(
            self._target.update(
                id,
                url=url,
                headers=headers,
                description=description,
                disabled=disabled,
                when_disabled=when_disabled,
                retry=retry,
            )
        )

    def delete(self, id: str) -> api.DeletedEndpoint:
        """Delete an endpoint."""
        return self._portal.run(self._target.delete(id))

    def rotate(
        self, id: str, *, overlap_s: float = 86400.0, secret: str | None = None
    ) -> api.Endpoint:
        """Replace the secret, with an overlap."""
        return self._portal.run(self._target.rotate(id, overlap_s=overlap_s, secret=secret))

    def test(self, id: str) -> Timer:
        """Send a signed test call."""
        return self._portal.run(self._target.test(id))

    def deliveries(
        self,
        id: str,
        *,
        state: Literal["", "succeeded", "failed", "pending"] = "",
        after: str = "",
        limit: int = 50,
    ) -> api.DeliveryPage:
        """List the calls of an endpoint, the latest first."""
        return self._portal.run(self._target.deliveries(id, state=state, after=after, limit=limit))

    def iterate_deliveries(
        self,
        id: str,
        *,
        state: Literal["", "succeeded", "failed", "pending"] = "",
        after: str = "",
        limit: int = 50,
    ) -> Iterator[api.Delivery]:
        """Iterate over the entries of all pages of `deliveries`."""
        return self._portal.iterate(
            self._target.iterate_deliveries(id, state=state, after=after, limit=limit)
        )

    def get_delivery(self, id: str, delivery: str) -> api.Delivery:
        """Show a call of an endpoint with its body."""
        return self._portal.run(self._target.get_delivery(id, delivery))

    def resend(self, id: str, delivery: str, *, key: str = "") -> api.Delivery:
        """Resend a call, with the same id."""
        return self._portal.run(self._target.resend(id, delivery, key=key))

    def resend_many(
        self,
        id: str,
        *,
        state: Literal["failed", "succeeded", "all"] = "failed",
        since_ms: int = 0,
        after: str = "",
    ) -> api.ResentDeliveries:
        """Resend failed calls of an endpoint, or others."""
        return self._portal.run(
            self._target.resend_many(id, state=state, since_ms=since_ms, after=after)
        )

    def create_portal(self, id: str, *, expires_s: float = 86400.0) -> api.Portal:
        """Create a link and a token for an endpoint's owner."""
        return self._portal.run(self._target.create_portal(id, expires_s=expires_s))

    def revoke_portals(self, id: str) -> api.Endpoint:
        """Revoke all portal links and tokens of an endpoint."""
        return self._portal.run(self._target.revoke_portals(id))
