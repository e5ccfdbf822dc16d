"""Client methods for sessions, from `onceward.api.sessions`. Written by `make generate`."""

from collections.abc import AsyncIterator

from msgspec import UNSET, UnsetType

from onceward.api import sessions as api
from onceward.client.operations.base import Operations


class SessionsOperations(Operations):
    """Operations on console sessions."""

    async def create_link(self) -> str:
        """Create a link that signs in once."""
        return (await self._transport.run(api.LINK)).link

    async def list(self, *, everyone: bool = False, after: str = "") -> api.SessionPage:
        """List sessions at the console.

        - `everyone`: Whether to list the sessions of all callers.
        - `after`: The member `next` of the last page.
        """
        return await self._transport.run(
            api.LIST, query=api.FindSessions(everyone=everyone, after=after)
        )

    async def iterate(
        self, *, everyone: bool = False, after: str = ""
    ) -> AsyncIterator[api.SessionSummary]:
        """Iterate over the entries of all pages of `list`.

        Arguments and errors are the same.
        """
        while True:
            page = await self.list(everyone=everyone, after=after)
            for one in page.sessions:
                yield one
            if page.next is None:
                return
            after = page.next

    async def revoke(self, id: str, *, caller: str | UnsetType = UNSET) -> int:
        """Revoke a session.

        - `id`: The id of the session.
        - `caller`: The id of a caller; by default, the caller of the request.

        Raises `BadInput` (no_such_session).
        """
        return (
            await self._transport.run(api.REVOKE, id, query=api.WhoseSessions(caller=caller))
        ).sessions

    async def revoke_all(self, *, caller: str | UnsetType = UNSET) -> int:
        """Revoke all sessions of a caller.

        - `caller`: The id of a caller; by default, the caller of the request.
        """
        return (
            await self._transport.run(api.REVOKE_ALL, query=api.WhoseSessions(caller=caller))
        ).sessions
