"""What workers have noted about the locks that they use."""

import json
from collections.abc import Iterable
from pathlib import Path

from onceward.client import Client, Lock
from onceward.errors import OncewardError
from tests.chaos.history import NEVER_NS, Found, History, Use
from tests.chaos.terms import LOCKS
from tests.chaos.world import World


def read_uses(files: Iterable[Path], history: History) -> None:
    """Take over what is in these files. A line may be cut off: its writer was killed."""
    for file in files:
        lines = file.read_text().splitlines() if file.exists() else []
        for line in lines:
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if said["what"] == "asked":
                history.uses[said["use"]] = Use(said["name"], said["at_ns"])
                continue
            use = history.uses[said["use"]]
            use.until_ns = max(use.until_ns, said.get("until_ns", 0))
            if said["what"] == "granted":
                use.granted_ns, use.token = said["at_ns"], said["token"]
            elif said["what"] == "ending":
                use.ended_ns = said["at_ns"]


async def settle_locks(world: World) -> None:
    """Wait until nobody holds a lock; those who were killed do so until their leases run out."""
    for name in LOCKS:
        while await _held(world, name):
            await world.clock.sleep(0.2)


async def find_locks(world: World, found: Found) -> None:
    for name in LOCKS:
        found.held[name] = await _held(world, name)


async def _held(world: World, name: str) -> int:
    async def ask(client: Client) -> Lock | None:
        try:
            return await client.locks.get(name)
        except OncewardError as error:
            if error.code != "no_such_lock":
                raise
            return None

    status = await world.insist(ask)
    return 0 if status is None else status.held + status.waiting


def figures(history: History) -> dict[str, int]:
    granted = [use for use in history.uses.values() if use.granted_ns != NEVER_NS]
    return {
        "locks granted": len(granted),
        "writes with a fencing token": len(history.writes),
        "writes refused for an old token": sum(write.refused for write in history.writes),
    }
