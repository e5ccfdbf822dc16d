"""Client methods for endpoints, from `onceward.api.endpoints`. Written by `make generate`."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from onceward.api import endpoints as api
from onceward.api.arguments import as_dict, as_struct, in_ms
from onceward.api.retries import RetryPolicy
from onceward.api.timers import Timer
from onceward.client.operations.base import Operations


class EndpointsOperations(Operations):
    """Operations on endpoints: webhook receivers and their secrets."""

    async def create(
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
        """Create an endpoint.

        - `url`: The URL to call.
        - `headers`: Sent with every call, beside those of the timer.
        - `description`: A description for people.
        - `disabled`: While it is disabled, calls fail at once and can be resent later, or wait.
        - `when_disabled`: What calls do while it is disabled: fail at once, or wait until it is
          enabled.
        - `retry`: The default of its calls: `pauses_s`, `attempts_max`, `timeout_s`.
        - `secret`: The secret of a new endpoint: whsec_ and 24 to 64 bytes in base64. By default,
          the server generates one.
        - `id`: The id of the endpoint; by default, the server generates one.

        Raises `AddressRefused`, `KeyReused`, `BadInput` (bad_name, bad_endpoint, bad_url,
        bad_secret).
        """
        return await self._transport.run(
            api.CREATE,
            body=api.CreateEndpoint(
                url=url,
                headers=as_dict("headers", headers) or {},
                description=description,
                disabled=disabled,
                when_disabled=when_disabled,
                retry=as_struct("retry", retry, RetryPolicy),
                secret=secret,
                id=id,
            ),
        )

    async def list(
        self, *, after: str = "", limit: int = 100, everyone: bool = False
    ) -> api.EndpointPage:
        """List your endpoints, or those of all callers.

        - `after`: The cursor of the next page.
        - `limit`: The maximum number of entries in the response.
        - `everyone`: Whether to list the endpoints of all callers.
        """
        return await self._transport.run(
            api.LIST, query=api.FindEndpoints(after=after, limit=limit, everyone=everyone)
        )

    async def iterate(
        self, *, after: str = "", limit: int = 100, everyone: bool = False
    ) -> AsyncIterator[api.Endpoint]:
        """Iterate over the entries of all pages of `list`.

        Arguments and errors are the same. `limit` is the size of a page.
        """
        while True:
            page = await self.list(after=after, limit=limit, everyone=everyone)
            for one in page.endpoints:
                yield one
            if page.next is None:
                return
            after = page.next

    async def get(self, id: str, *, secret: bool = False) -> api.Endpoint:
        """Show an endpoint.

        - `id`: The id of the endpoint.
        - `secret`: Whether to show its secrets.

        Raises `NoSuchEndpoint`, `BadInput` (bad_name).
        """
        return await self._transport.run(api.GET, id, query=api.ShowEndpoint(secret=secret))

    async def put(
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
        """Create or replace an endpoint, without its secrets.

        - `id`: The id of the endpoint.
        - `url`: The URL to call.
        - `headers`: Sent with every call, beside those of the timer.
        - `description`: A description for people.
        - `disabled`: While it is disabled, calls fail at once and can be resent later, or wait.
        - `when_disabled`: What calls do while it is disabled: fail at once, or wait until it is
          enabled.
        - `retry`: The default of its calls: `pauses_s`, `attempts_max`, `timeout_s`.
        - `secret`: The secret of a new endpoint: whsec_ and 24 to 64 bytes in base64. By default,
          the server generates one.

        Raises `AddressRefused`, `BadInput` (bad_name, bad_endpoint, bad_url, bad_secret).
        """
        return await self._transport.run(
            api.PUT,
            id,
            body=api.PutEndpoint(
                url=url,
                headers=as_dict("headers", headers) or {},
                description=description,
                disabled=disabled,
                when_disabled=when_disabled,
                retry=as_struct("retry", retry, RetryPolicy),
                secret=secret,
            ),
        )

    async def update(
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
        """Change an endpoint.

        - `id`: The id of the endpoint.
        - `url`: The URL to call.
        - `headers`: Headers to send with every call, in place of the current ones.
        - `description`: A description for people.
        - `disabled`: While it is disabled, calls fail at once and can be resent later, or wait.
        - `when_disabled`: What calls do while it is disabled: fail at once, or wait until it is
          enabled.
        - `retry`: The retry policy of its calls: pauses_s, attempts_max, timeout_s.

        Raises `NoSuchEndpoint`, `AddressRefused`, `BadInput` (bad_name, bad_endpoint, bad_url,
        bad_secret).
        """
        return await self._transport.run(
            api.UPDATE,
            id,
            body=api.UpdateEndpoint(
                url=url,
                headers=as_dict("headers", headers),
                description=description,
                disabled=disabled,
                when_disabled=when_disabled,
                retry=as_struct("retry", retry, RetryPolicy),
            ),
        )

    async def delete(self, id: str) -> api.DeletedEndpoint:
        """Delete an endpoint.

        - `id`: The id of the endpoint.

        Raises `NoSuchEndpoint`, `BadInput` (bad_name).
        """
        return await self._transport.run(api.DELETE, id)

    async def rotate(
        self, id: str, *, overlap_s: float = 86400.0, secret: str | None = None
    ) -> api.Endpoint:
        """Replace the secret, with an overlap.

        - `id`: The id of the endpoint.
        - `overlap_s`: How long calls are also signed with the previous secret.
        - `secret`: The new secret; by default, the server generates one. The same one again changes
          nothing.

        Raises `NoSuchEndpoint`, `BadInput` (bad_name, bad_secret).
        """
        return await self._transport.run(
            api.ROTATE,
            id,
            body=api.RotateSecret(overlap_ms=in_ms("overlap_s", overlap_s), secret=secret),
        )

    async def test(self, id: str) -> Timer:
        """Send a signed test call.

        - `id`: The id of the endpoint.

        Raises `NoSuchEndpoint`, `KeyReused`, `BadInput` (bad_name, bad_endpoint, bad_key).
        """
        return await self._transport.run(api.TEST, id)

    async def deliveries(
        self,
        id: str,
        *,
        state: Literal["", "succeeded", "failed", "pending"] = "",
        after: str = "",
        limit: int = 50,
    ) -> api.DeliveryPage:
        """List the calls of an endpoint, the latest first.

        - `id`: The id of the endpoint.
        - `state`: Their state: succeeded, failed, or pending; by default, any.
        - `after`: The cursor of the next page.
        - `limit`: The maximum number of entries in the response.

        Raises `NoSuchEndpoint`, `BadInput` (bad_name).
        """
        return await self._transport.run(
            api.DELIVERIES, id, query=api.FindDeliveries(state=state, after=after, limit=limit)
        )

    async def iterate_deliveries(
        self,
        id: str,
        *,
        state: Literal["", "succeeded", "failed", "pending"] = "",
        after: str = "",
        limit: int = 50,
    ) -> AsyncIterator[api.Delivery]:
        """Iterate over the entries of all pages of `deliveries`.

        Arguments and errors are the same. `limit` is the size of a page.
        """
        while True:
            page = await self.deliveries(id, state=state, after=after, limit=limit)
            for one in page.deliveries:
                yield one
            if page.next is None:
                return
            after = page.next

    async def get_delivery(self, id: str, delivery: str) -> api.Delivery:
        """Show a call of an endpoint with its body.

        - `id`: The id of the endpoint.
        - `delivery`: The name of the delivery.

        Raises `NoSuchEndpoint`, `NoSuchFiring`, `BadInput` (bad_name).
        """
        return await self._transport.run(api.GET_DELIVERY, id, delivery)

    async def resend(self, id: str, delivery: str, *, key: str = "") -> api.Delivery:
        """Resend a call, with the same id.

        - `id`: The id of the endpoint.
        - `delivery`: The name of the delivery.
        - `key`: The idempotency key: a repeated request sends the call once.

        Raises `NoSuchEndpoint`, `NoSuchFiring`, `NotFailed`, `BadInput` (bad_name).
        """
        return await self._transport.run(api.RESEND, id, delivery, body=api.ResendDelivery(key=key))

    async def resend_many(
        self,
        id: str,
        *,
        state: Literal["failed", "succeeded", "all"] = "failed",
        since_ms: int = 0,
        after: str = "",
    ) -> api.ResentDeliveries:
        """Resend failed calls of an endpoint, or others.

        - `id`: The id of the endpoint.
        - `state`: The state of the calls: failed, succeeded, or all that have ended.
        - `since_ms`: Calls that were due at this time or later, in milliseconds since 1970.
        - `after`: The cursor of the next page.

        Raises `NoSuchEndpoint`, `BadInput` (bad_name).
        """
        return await self._transport.run(
            api.RESEND_MANY,
            id,
            body=api.ResendDeliveries(state=state, since_ms=since_ms, after=after),
        )

    async def create_portal(self, id: str, *, expires_s: float = 86400.0) -> api.Portal:
        """Create a link and a token for an endpoint's owner.

        - `id`: The id of the endpoint.
        - `expires_s`: How long it is valid.

        Raises `NoSuchEndpoint`, `BadInput` (bad_name, bad_endpoint).
        """
        return await self._transport.run(
            api.CREATE_PORTAL, id, body=api.CreatePortal(expires_ms=in_ms("expires_s", expires_s))
        )

    async def revoke_portals(self, id: str) -> api.Endpoint:
        """Revoke all portal links and tokens of an endpoint.

        - `id`: The id of the endpoint.

        Raises `NoSuchEndpoint`, `BadInput` (bad_name).
        """
        return await self._transport.run(api.REVOKE_PORTALS, id)
