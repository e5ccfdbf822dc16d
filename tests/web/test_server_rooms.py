"""A server of rooms that is killed again and again under load, and readers that do not read.

`ONCEWARD_KILLS=5 ONCEWARD_CLIENTS=40` makes a short piece of the long run.
"""

import asyncio
import os
import random
import socket
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import pytest

from onceward import limits
from tests.server_process import ServerProcess
from tests.web.drones import Drone
from tests.web.peer import Peer

SOAK = os.environ.get("ONCEWARD_SOAK") == "1"
KILLS = int(os.environ.get("ONCEWARD_KILLS", "50")) if SOAK else 3
GHOSTS_S = 10 if SOAK else 60
"""How long someone who is gone may be seen."""
CLIENTS, ROOMS = int(os.environ.get("ONCEWARD_CLIENTS", "200")) if SOAK else 200, 20
STEPS = 10 if SOAK else 5
"""Of each client between two kills."""

pytestmark = [pytest.mark.rooms, pytest.mark.timeout(2_700 if SOAK else 240)]


async def test_a_server_killed_under_load_loses_nothing_and_applies_nothing_twice(
    tmp_path: Path,
) -> None:
    seed = random.randrange(1 << 32) if SOAK else 7
    print(f"seed {seed}")
    chance = random.Random(seed)
    drones = [Drone(f"d{number}", f"room{number % ROOMS}") for number in range(CLIENTS)]
    with ServerProcess(tmp_path) as server:
        for drone in drones:
            drone.start(server.port)
        await asyncio.gather(*[drone.until(lambda drone=drone: drone.joined) for drone in drones])
        for _ in range(KILLS):
            chosen = chance.choice(drones)
            enough = chosen.acknowledged + chance.randrange(STEPS)
            work = [asyncio.create_task(_work(drone)) for drone in drones]
            await chosen.until(lambda chosen=chosen, enough=enough: chosen.acknowledged >= enough)
            server.kill()
            server.start()
            await asyncio.to_thread(server.until_ready)
            await asyncio.gather(*work)
        await _settle(drones)

        def crash() -> None:
            server.kill()
            server.start()

        await _see_ghosts_go(_judge(drones, KILLS * STEPS), crash)
        for drone in drones:
            drone.stop()
        assert server.stop() == 0
    assert server.log.read_text().count("Traceback") == 0
    assert not any(reset not in ("new", "gap") for drone in drones for reset in drone.resets)


async def test_three_nodes_lose_nothing_when_the_one_that_serves_a_room_is_killed(
    url: str, tmp_path: Path
) -> None:
    kills, clients, rooms = (KILLS, CLIENTS, ROOMS) if SOAK else (1, 30, 6)
    seed = random.randrange(1 << 32) if SOAK else 7
    print(f"seed {seed}")
    chance = random.Random(seed)
    drones = [Drone(f"d{number}", f"room{number % rooms}") for number in range(clients)]
    with ExitStack() as stack:
        servers = []
        for number in range(3):
            folder = tmp_path / str(number)
            folder.mkdir()
            options = ("--database", url, "--name", f"node{number}")
            servers.append(stack.enter_context(ServerProcess(folder, *options)))
        ports = [server.port for server in servers]
        for number, drone in enumerate(drones):
            drone.start(*ports[number % 3 :], *ports[: number % 3])
        await asyncio.gather(*[drone.until(lambda drone=drone: drone.joined) for drone in drones])
        for _ in range(kills):
            work = [asyncio.create_task(_work(drone)) for drone in drones]
            chosen = chance.choice(drones)
            enough = chosen.acknowledged + chance.randrange(STEPS)
            await chosen.until(lambda chosen=chosen, enough=enough: chosen.acknowledged >= enough)
            victim = chance.choice(servers)
            victim.kill()
            await asyncio.gather(*work)  # by the others alone
            victim.start()
            await asyncio.to_thread(victim.until_ready)
        await _settle(drones)
        await _see_ghosts_go(_judge(drones, kills * STEPS), chance.choice(servers).kill)
        for drone in drones:
            drone.stop()


async def test_readers_that_do_not_read_are_cut_off_and_memory_stays_bounded(
    tmp_path: Path,
) -> None:
    mutes, readers = (5 * CLIENTS, 100) if SOAK else (15, 3)
    with ServerProcess(tmp_path, "--frame-rate", "1000000") as server:
        speaker = await _enter(server.port, "speaker")
        people = [await _enter(server.port, f"u{number}") for number in range(readers)]
        silent = [await _enter(server.port, f"m{number}", mute=True) for number in range(mutes)]
        before_bytes = _resident_bytes(server.pid, "VmRSS")
        text = "x" * 60_000
        watching = asyncio.create_task(_see_go(speaker, mutes))
        # More than all buffers on the way to one that does not read can take.
        buffers = int(Path("/proc/sys/net/ipv4/tcp_wmem").read_text().split()[2])
        enough = (2 * buffers + 2 * limits.READER_BYTES_MAX) // len(text) + 50
        for said in range(enough):
            await speaker.send({"t": "say", "room": "r", "event": str(said), "value": text})
            for person in people:
                assert (await person.until(t="said"))["event"] == str(said)  # all, in order
        await watching
        assert await asyncio.to_thread(_closes, server.url, "slow_reader") == mutes
        grown_bytes = _resident_bytes(server.pid, "VmHWM") - before_bytes  # at its worst
        most_bytes = limits.READER_BYTES_MAX + limits.WRITE_BYTES_HIGH + 100_000
        assert grown_bytes < mutes * most_bytes + 30_000_000
        for peer in (speaker, *people, *silent):
            await peer.leave()
        assert server.stop() == 0


async def test_a_server_that_stops_answers_steps_and_says_that_it_stops(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        peers = [await _enter(server.port, f"u{number}") for number in range(3)]
        op = {"op": "map.set", "map": "m", "key": "k", "value": 1}
        await peers[0].send({"t": "ops", "room": "r", "n": 1, "ops": [op]})
        await peers[0].until(t="ack")
        stopping = asyncio.create_task(asyncio.to_thread(server.stop))
        for peer in peers:
            closed = await peer.closed()
            assert (closed.code, closed.reason) == (4503, "node_stopped")
            await peer.leave()
        assert await stopping == 0
    lines = server.log.read_text().splitlines()
    assert [line for line in lines if "generated the server key" not in line] == []


async def _enter(port: int, name: str, *, mute: bool = False) -> Peer:
    peer = await Peer.connect(port)
    await peer.send({"t": "hello", "token": f"dev:{name}"})
    await peer.send({"t": "join", "room": "r", "client": name, "create": True})
    await peer.until(t="snapshot")
    if mute:
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        peer.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    return peer


async def _see_go(speaker: Peer, mutes: int) -> None:
    """Return when that many have gone."""
    for _ in range(mutes):
        await speaker.until(t="went")


def _closes(url: str, code: str) -> float:
    """How many connections were closed for a reason, as the server tells."""
    with urlopen(f"{url}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    name = f'onceward_room_closes_total{{code="{code}"}} '
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))


def _resident_bytes(pid: int, what: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith(what)]
    return int(line.split()[1]) * 1024


def _judge(drones: list[Drone], steps: int) -> dict[str, list[Drone]]:
    """Every step is there once, and everybody in a room sees the same."""
    by_room: dict[str, list[Drone]] = defaultdict(list)
    for drone in drones:
        by_room[drone.room].append(drone)
        assert not drone.faults
        count = drone.state.maps["counts"][drone.name].value
        assert count == drone.n == steps, drone.name
    for members in by_room.values():
        assert len({drone.whole for drone in members}) == 1
    return by_room


async def _see_ghosts_go(by_room: dict[str, list[Drone]], crash: Callable[[], None]) -> None:
    """In every room all see those who are there; and if someone goes at the very moment when a
    server crashes, soon nobody sees that one any more."""
    for members in by_room.values():
        await _see_each_other(members)
    begun = time.monotonic()
    crash()
    for gone, *_ in by_room.values():
        gone.stop()
    async with asyncio.timeout(GHOSTS_S):
        for _, *members in by_room.values():
            await _see_each_other(members)
    print(f"nobody sees them after {time.monotonic() - begun:.1f} s")


async def _see_each_other(members: list[Drone]) -> None:
    """Until each sees all of them, and nobody else."""
    names = {drone.name for drone in members}
    for witness in members:
        await witness.until(
            lambda witness=witness: witness.joined and witness.presences | {witness.name} == names
        )


async def _work(drone: Drone) -> None:
    """Some steps, a few at a time."""
    for _ in range(STEPS):
        drone.add()
        await drone.until(lambda: len(drone.sent) < 4)


async def _settle(drones: list[Drone]) -> None:
    """Until all steps are answered, and everybody knows of all."""
    await asyncio.gather(
        *[drone.until(lambda drone=drone: drone.joined and not drone.sent) for drone in drones]
    )
    seqs: dict[str, int] = defaultdict(int)
    for drone in drones:
        seqs[drone.room] = max(seqs[drone.room], drone.seq)
    await asyncio.gather(
        *[drone.until(lambda drone=drone: drone.seq >= seqs[drone.room]) for drone in drones]
    )
