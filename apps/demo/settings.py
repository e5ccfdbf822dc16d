"""Settings of the child processes (DEMO_… in their environment), and shared names."""

from collections.abc import Mapping

import msgspec

from onceward import OncewardError

PREFIX = "DEMO_"
ORDERS, PARCELS, PULLS = "orders", "parcels", "pulls"
"""Queues: orders become parcels, and credit is pulled."""
BOTS = "bots"
"""The table at which bots play."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Addresses and secrets."""

    parent: int
    """The process id of the stage; the others end with it."""
    port: int
    """The port of the server."""
    database: str
    outside: str
    """The URL of the external services: carrier, bureau and Salesforce."""
    control: str
    """The secret URL of the stage's control API."""
    secret: str
    """The secret of senders of credit applications."""
    server_key: str = ""
    """For a temporary database; empty to use a stored key."""

    @property
    def server(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def environment(self) -> dict[str, str]:
        return {
            f"{PREFIX}{name.upper()}": str(value)
            for name, value in msgspec.structs.asdict(self).items()
        }


def load(environment: Mapping[str, str]) -> Settings:
    """Read the settings from an environment. Raises `bad_settings`."""
    told = {
        name.removeprefix(PREFIX).lower(): text
        for name, text in environment.items()
        if name.startswith(PREFIX)
    }
    try:
        return msgspec.convert(told, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise OncewardError(
            f"only `make demo` can start this: {error}", code="bad_settings"
        ) from error
