"""What the stage tells the processes that it starts: DEMO_… in their environment. And the names
that they have in common."""

from collections.abc import Mapping

import msgspec

from onceward import OncewardError

PREFIX = "DEMO_"
ORDERS, PARCELS, PULLS = "orders", "parcels", "pulls"
"""Queues: orders become parcels, and credit is pulled."""
BOTS = "bots"
"""The table at which bots play."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where everything is."""

    parent: int
    """The process of the stage: without it, the others end."""
    port: int
    """Of the server."""
    database: str
    outside: str
    """The URL of the world outside: the carrier, the bureau, and who is told results."""
    control: str
    """The URL at which the stage is asked, and told what to do. Whoever knows it may do so."""
    secret: str
    """Of those who send credit applications."""
    server_key: str = ""
    """Of a database that is thrown away; empty: one is kept for it."""

    @property
    def server(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def environment(self) -> dict[str, str]:
        return {
            f"{PREFIX}{name.upper()}": str(value)
            for name, value in msgspec.structs.asdict(self).items()
        }


def load(environment: Mapping[str, str]) -> Settings:
    """The settings in an environment. Raises `bad_settings`."""
    told = {
        name.removeprefix(PREFIX).lower(): text
        for name, text in environment.items()
        if name.startswith(PREFIX)
    }
    try:
        return msgspec.convert(told, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise OncewardError(
            f"only `make demo` starts this: {error}", code="bad_settings"
        ) from error
