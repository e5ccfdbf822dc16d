"""A server of one room, clients, and connections between them that break: all of it pure.

The server commits now and then, and answers only then; when it crashes, what was not committed is
lost. What is on its way on a connection that breaks is lost too, from some point on; or it arrives
late, while its client has another connection already. Connections deliver in order, each at its
own pace.
"""

from collections import Counter, deque
from random import Random
from typing import Any

from onceward.api import room_changes as op
from onceward.client.rooms.replica import Replica
from onceward.client.rooms.steps import Step
from onceward.errors import BadInput, OncewardError
from onceward.rooms.frames import (
    Ack,
    Joined,
    Left,
    Ops,
    Refused,
    Snapshot,
    encode,
    read_client,
    read_server,
)
from onceward.rooms.frames import Step as SentStep
from onceward.rooms.room import Entry, Room, Taken, replayed

ROOM = "r"


class Link:
    """One connection: what is under way to the server, and to the client."""

    def __init__(self, peer: "Peer") -> None:
        self.peer = peer
        self.up: deque[bytes] = deque()
        self.down: deque[bytes] = deque()
        self.joined = False


class Server:
    """Follows the rules of the protocol, with nothing in memory that a crash could not take."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.entries: list[Entry] = []
        """All that was ever committed; the log reaches back to `floor`."""
        self.floor = 0
        self.now_ms = 0
        self.links: list[Link] = []
        self.tally: Counter[str] = Counter()
        """What has happened: a test of which nothing happens shows nothing."""
        self.start()

    def start(self) -> None:
        self.room = replayed(Room("e"), self.entries)
        self.room.forget(self.floor, self.now_ms)
        self.taken: list[tuple[Link, Taken]] = []

    def receive(self, link: Link, raw: bytes) -> None:
        frame = read_client(raw)
        if isinstance(frame, Ops):
            if not link.joined:
                self.say(link, Refused(ROOM, frame.n, "not_joined"))
                return
            self.take(link, [SentStep(frame.n, frame.ops)])
            return
        self.commit()  # so that whoever joins is told of nothing that may yet be lost
        for other in self.links:  # whose client comes anew: no step may come over it any more
            if other.joined and other.peer is link.peer:
                other.joined = False
                self.say(other, Left(ROOM, "room_moved"))
        waiting = bool(frame.steps)  # type: ignore[union-attr]
        name, client = link.peer.name, frame.client  # type: ignore[union-attr]
        greeting = self.room.greet(
            self.floor,
            name,
            client,
            frame.epoch,  # type: ignore[union-attr]
            frame.seq,  # type: ignore[union-attr]
            waiting=waiting,
            same=self.has(frame.seq, frame.digest),  # type: ignore[union-attr]
        )
        room = self.room
        self.tally[greeting.reset or "replay"] += 1
        self.tally["skipped"] += len(greeting.skipped)
        self.tally["again"] += sum(step.n <= greeting.n for step in frame.steps)  # type: ignore[union-attr]
        self.say(
            link,
            Joined(
                *(ROOM, room.epoch, room.seq, greeting.n, "", [], {}, greeting.reset),
                *greeting[3:],
                digest=room.digest,
            ),
        )
        if greeting.reset:
            pieces = list(room.pieces(300))
            for number, piece in enumerate(pieces, 1):
                more = number < len(pieces)
                self.say(link, Snapshot(ROOM, room.seq, piece.maps, piece.lists, more))
        else:
            for entry in self.entries[frame.seq :]:  # type: ignore[union-attr]
                self.say(link, entry.change(ROOM))
        link.joined = True
        if greeting.takes:
            self.take(link, [step for step in frame.steps if step.n > greeting.n])  # type: ignore[union-attr]

    def has(self, seq: int, digest: str) -> bool | None:
        """Whether the log has a digest at a sequence number."""
        if not self.floor <= seq <= len(self.entries):
            return None
        return digest == (self.entries[seq - 1].digest if seq else "")

    def take(self, link: Link, steps: list[SentStep]) -> None:
        for step in steps:
            by, client = link.peer.name, link.peer.replica.client
            try:
                taken = self.room.take(step.ops, by=by, client=client, n=step.n, at_ms=self.now_ms)
            except BadInput as error:
                # Behind what came before it, also in the order of answers.
                self.tally["refused"] += 1
                self.commit()
                self.say(link, Refused(ROOM, step.n, error.code, error.message))
                continue
            if taken is not None:
                self.taken.append((link, taken))
                self.tally["taken"] += 1
            else:
                mark = self.room.clients[by, client]
                self.commit()
                self.say(link, Ack(ROOM, step.n, mark.seq))

    def commit(self) -> None:
        for author, taken in self.taken:
            entry = taken.entry
            self.entries.append(entry)
            for link in self.links:
                if link.joined:
                    own = link is author
                    ack = Ack(ROOM, entry.n, entry.seq, entry.digest)
                    self.say(link, ack if own else entry.change(ROOM))
        self.taken.clear()
        self.floor = max(self.floor, self.room.seq - self.keep)
        self.now_ms += 20_000
        self.room.forget(self.floor, self.now_ms)

    def append(self) -> None:
        """A step of no client: the same one each time."""
        taken = self.room.take([op.MapSet("one", "a", 1)])
        assert taken is not None
        self.taken.append((Link(self.links[0].peer), taken))
        self.commit()

    def restore(self, count: int) -> list[Entry]:
        """Lose all but so many entries of the log, as by a backup; returns the lost ones."""
        lost, self.entries = self.entries[count:], self.entries[:count]
        self.floor = min(self.floor, max(0, count - self.keep))
        self.tally["restored"] += 1
        self.crash()
        return lost

    def crash(self) -> None:
        self.tally["lost"] += len(self.taken)
        for link in list(self.links):
            if link.peer.link is link:
                link.peer.cut()
        self.links.clear()
        self.start()

    def say(self, link: Link, frame: Any) -> None:
        if link in self.links:
            link.down.append(encode(frame))


class Peer:
    """A client, its copy of the room, and the answers that its steps got."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.replica = Replica(ROOM, f"{name}-client")
        self.replica.user = name
        self.link: Link | None = None
        self.acked: list[int] = []
        self.failed: dict[int, str] = {}
        self.seen = 0
        self.position = 0
        self.restored = False

    def connect(self) -> None:
        self.link = Link(self)
        self.world.server.links.append(self.link)
        self.link.up.append(encode(self.replica.join()))

    def cut(self, *, noticed: bool = True) -> None:
        """Lose the connection, with what is on its way; if the server does not notice, what was
        sent arrives there later."""
        if self.link is not None:
            if noticed:
                self.world.server.links.remove(self.link)
            self.link = None
            self.replica.lost()

    def send(self) -> None:
        if self.link is not None:
            self.link.up.extend(encode(frame) for frame in self.replica.out)
            self.replica.out.clear()

    def receive(self, most: int) -> None:
        for _ in range(most):
            if self.link is None or not self.link.down:
                break
            frame = read_server(self.link.down.popleft())
            if isinstance(frame, Left):
                self.link.up.append(encode(self.replica.join()))
                continue
            if isinstance(frame, Joined):
                self.restored = frame.reset in ("ahead", "diverged", "forgotten")
            if isinstance(frame, Snapshot) and self.restored:
                self.position = 0
            self.replica.receive(frame)  # type: ignore[arg-type]
        self.replica.settle()
        assert self.replica.seq >= self.position, "without a reset, positions never go back"
        self.position = self.replica.seq
        self.send()

    def change(self, ops: list[Any]) -> None:
        try:
            step = self.replica.change(ops)
        except OncewardError:
            return
        self.watch(step)
        self.send()

    def watch(self, step: Step) -> None:
        step.on_answer(self._answered)

    def _answered(self, step: Step) -> None:
        if step.error is None:
            self.acked.append(step.n)
        else:
            self.failed[step.n] = step.error.code


class World:
    """All of it, from one seed."""

    def __init__(self, seed: int, peers: int, keep: int = 60) -> None:
        self.random = Random(seed)
        self.server = Server(keep)
        self.peers = [Peer(self, f"p{number}") for number in range(peers)]
        self.operations = 0
        self.lost: set[tuple[str, int]] = set()
        """Steps that were acknowledged, and that a restore may have lost."""
        self._ids = 0

    def run(self, turns: int) -> None:
        random = self.random
        for _ in range(turns):
            peer = random.choice(self.peers)
            chance = random.random()
            if chance < 0.40:
                self._edit(peer)
            elif chance < 0.60:
                self._up(peer.link, random.randint(1, 4))
            elif chance < 0.62 and self.server.links:
                self._up(random.choice(self.server.links), random.randint(1, 4))
            elif chance < 0.86:
                peer.receive(random.randint(1, 6))
            elif chance < 0.94:
                self.server.commit()
            elif chance < 0.97:
                peer.cut(noticed=chance < 0.955)
            elif chance < 0.972:
                self.server.crash()
            elif peer.link is None:
                peer.connect()

    def come_to_rest(self) -> None:
        """Let everyone connect, and everything arrive."""
        for peer in self.peers:
            if peer.link is None:
                peer.connect()
        busy = True
        while busy:
            busy = False
            for peer in self.peers:
                assert peer.link is not None
                busy = busy or bool(peer.link.up or peer.link.down)
            for link in list(self.server.links):
                self._up(link, 1_000)
            self.server.commit()
            for peer in self.peers:
                peer.receive(1_000)

    def judge(self) -> None:
        """All copies are as the server's; what was answered well is in it once, what was refused
        is not, and of the rest nothing is in it twice."""
        expected = self.server.room.state.plain()
        taken = Counter((entry.by, entry.n) for entry in self.server.entries if entry.client)
        assert set(taken.values()) <= {1}, "nothing was taken twice"
        for peer in self.peers:
            assert peer.replica.live
            assert not peer.replica.waiting
            assert peer.replica.seq == self.server.room.seq
            assert peer.replica.state.plain() == expected
            assert len(set(peer.acked)) == len(peer.acked)
            for n in peer.acked:
                assert taken[peer.name, n] == 1 or (peer.name, n) in self.lost
            for n, code in peer.failed.items():
                assert taken[peer.name, n] == 0 or code == "outcome_unknown"

    def judge_log(self) -> None:
        """The state is what the log says."""
        replay = replayed(Room("e"), self.server.entries)
        assert replay.state.plain() == self.server.room.state.plain()

    def _up(self, link: Link | None, most: int) -> None:
        for _ in range(most):
            if link is None or not link.up:
                return
            self.server.receive(link, link.up.popleft())

    def _edit(self, peer: Peer) -> None:
        ops = [self._operation(peer) for _ in range(self.random.choice((1, 2, 4, 8)))]
        self.operations += len(ops)
        peer.change(ops)

    def _operation(self, peer: Peer) -> Any:
        random = self.random
        name = random.choice(("one", "two"))
        key = random.choice("abcdef")
        items = peer.replica.state.lists.get(name)
        ids = list(items.cells) if items is not None else []
        chance = random.random()
        if chance < 0.25:
            return op.MapSet(name, key, random.randint(0, 9))
        if chance < 0.30:
            return op.MapDelete(name, key)
        if chance < 0.40:
            return op.MapAdd(name, random.choice(("n", "m", key)), 1)
        if chance < 0.45:
            found = peer.replica.state.get("map", name, key)
            if found is None:
                return op.MapCompare(name, key, 1)
            return op.MapCompare(name, key, 2, found.value)
        if chance < 0.46:
            return random.choice((op.MapDrop(name), op.ListDrop(name)))
        if chance < 0.65 or not ids:
            self._ids += 1
            after = random.choice((None, "", *ids[-5:]))
            at = items.cells[after].position if items is not None and after in ids else None
            return op.ListInsert(name, f"{peer.name}.{self._ids}", self._ids, after, at)
        one, other = random.choice(ids), random.choice(ids)
        if chance < 0.75:
            return op.ListMove(name, one, other)
        if chance < 0.85:
            return op.ListSet(name, one, random.randint(0, 9))
        return op.ListDelete(name, one)


class RestoredWorld(World):
    """The same with a server that is restored now and then, to a state not long ago."""

    def run(self, turns: int) -> None:
        for _ in range(turns):
            super().run(1)
            chance = self.random.random()
            if chance < 0.01:
                self._restore()
            elif chance < 0.05 and self.server.links:
                self.server.append()

    def _restore(self) -> None:
        server = self.server
        count = max(0, len(server.entries) - self.random.randint(1, 15))
        self.lost |= {(entry.by, entry.n) for entry in server.restore(count)}
