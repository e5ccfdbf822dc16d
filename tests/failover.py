"""A primary and its standbys, one after the other."""

from collections.abc import Mapping

from onceward.testing.postgres import PostgresServer, Standby


class Servers:
    """A primary and a standby for each test. After a failover, the standby is the next primary."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self.primary = PostgresServer(settings)
        self.primary.start()
        self.all = [self.primary]

    def follow(self, name: str = "") -> Standby:
        """A new standby."""
        standby = self.primary.standby(self._settings, name)
        self.all.append(standby)
        standby.start()
        return standby

    def make_synchronous(self, name: str) -> None:
        """Let commits wait for the standby of that name, and wait until they do."""
        self.primary.ask(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
        self.primary.ask("SELECT pg_reload_conf()")
        while self.primary.ask("SELECT sync_state FROM pg_stat_replication") != "sync":
            pass

    def fail_over(self, standby: Standby) -> None:
        """The primary is gone, and the standby takes its place."""
        self.primary.stop("kill")
        standby.promote()
        self.retire(standby)

    def retire(self, standby: Standby) -> None:
        """Remove the primary; a standby that was promoted takes its place."""
        self.all.remove(self.primary)
        self.primary.remove()
        self.primary = standby

    def remove(self) -> None:
        for server in self.all:
            server.remove()


def address(schema: str, *servers: PostgresServer) -> str:
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    return f"postgresql://postgres@{hosts}/postgres?target_session_attrs=primary&schema={schema}"
