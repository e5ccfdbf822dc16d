"""The client for synchronous code: operations, workers, locks, rooms and tables."""

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import pytest

from onceward.client import SyncWorkerJob
from onceward.errors import BadInput, LockHeld, NoSuchJob, NoSuchRoom, Unavailable
from onceward.sync import Client
from tests.client.served import Served


def test_operations_are_plain_methods(client: Client) -> None:
    receipt = client.send("orders", {"item": "lamp"}, key="1")
    assert client.messages.send("orders", {"item": "lamp"}, key="1").duplicate
    assert client.jobs.get(receipt.id).queue == "orders"
    assert client.jobs.wait(receipt.id, 0.01).state == "queued"
    assert [type(one).__name__ for one in client.send_many("orders", [{"body": 1}])] == ["Receipt"]
    with pytest.raises(NoSuchJob):
        client.jobs.get("0" * 26)
    with pytest.raises(BadInput):
        client.send("", 1)
    with pytest.raises(BadInput, match="URL"):
        Client("ftp://x")


def test_a_client_opens_itself_and_stays_closed(served: Served) -> None:
    client = Client(served.url)
    jobs = client.jobs
    assert jobs.get(client.send("q", 1).id).body == 1
    client.close()
    client.close()
    with pytest.raises(BadInput, match=r"the client of .* is closed"):
        client.send("q", 1)
    with client:
        assert client.send("q", 1).state == "queued"


def test_many_threads_share_one_client(client: Client) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: client.send("q", n % 10, key=str(n % 10)).id, range(80)))
    assert len(set(found)) == 10


def test_pages_are_iterators(client: Client) -> None:
    sent = {client.send("q", number).id for number in range(7)}
    assert {one.id for one in client.jobs.iterate(queue="q", limit=2)} == sent
    first = next(iter(client.jobs.iterate(queue="q", limit=2)))
    assert first.queue == "q"
    gc.collect()  # of an iterator that was not read to its end


def test_a_worker_runs_plain_functions_in_threads(client: Client) -> None:
    """Two at once, which wait for each other."""
    both = threading.Barrier(2, timeout=60)

    def handle(job: SyncWorkerJob) -> Any:
        both.wait()
        job.progress(0.5, "half")
        job.stream(job.body)
        client.send("handled", job.body)  # the API works in handlers
        return job.body * 2

    worker = client.worker("numbers", handle, concurrency=2)
    sent = [client.send("numbers", number) for number in (1, 2)]
    running = threading.Thread(target=worker.run)
    running.start()
    ended = [client.jobs.wait(one.id) for one in sent]
    assert [(one.result, one.progress) for one in ended] == [(2, 0.5), (4, 0.5)]
    updates = [(one.kind, one.value) for one in client.jobs.follow(sent[0].id)]
    assert updates == [("progress", None), ("chunk", 1), ("end", None)]
    worker.stop()
    running.join(60)
    assert not running.is_alive()
    with pytest.raises(BadInput, match="the handler of a worker must be"):
        client.worker("q", 3)  # type: ignore[arg-type]


def test_locks_are_contexts(client: Client) -> None:
    with client.locks.hold(["printer"], lease_s=5) as held:
        assert held.token == 1
        assert client.locks.get("printer").held == 1
        with pytest.raises(LockHeld), client.locks.hold(["printer"]):
            pytest.fail("held twice")
    assert client.locks.get("printer").held == 0
    again = client.locks.hold(["printer"])
    with again:
        pass
    with pytest.raises(BadInput, match="entered before"), again:
        pytest.fail("entered twice")


def test_rooms_have_maps_lists_presences_and_events(client: Client) -> None:
    with client.live() as live, client.live() as other:
        room = live.join("board", create=True)
        there = other.join("board")
        seen: SimpleQueue[Any] = SimpleQueue()
        # A subscriber may use the API: it runs in a thread of its own.
        end = there.map("stock").subscribe(
            lambda value, who: seen.put((value, there.map("stock").get("lamp")))
        )
        saved = room.map("stock").set("lamp", 2)
        assert saved.wait() is not None
        assert saved.done
        assert seen.get(timeout=60) == ({"lamp": 2}, 2)
        end()
        assert "lamp" in room.map("stock")
        assert (len(room.map("stock")), list(room.map("stock"))) == (1, ["lamp"])
        with room.batch() as both:
            room.list("notes").push("a")
            item = room.list("notes").push("b")
        both.wait()
        assert room.list("notes").get(item.id) == "b"
        assert [one.value for one in room.list("notes").items()] == ["a", "b"]
        undone = room.undo()
        assert undone.step is not None
        undone.step.wait()
        assert list(room.list("notes")) == []
        there.on("hello", lambda value, said: seen.put(value))
        room.say("hello", "you")
        assert seen.get(timeout=60) == "you"
        room.presence("cursor").set([1, 2])
        assert room.presence("cursor").mine == [1, 2]
        assert (live.state, room.status, len(room.members)) == ("connected", "live", 2)
        assert live.room("board") == room
        room.leave()
    with client.live() as live, pytest.raises(NoSuchRoom):
        live.join("none")


def test_a_live_place_at_a_table(client: Client) -> None:
    client.tables.create(id="corner")
    with client.live() as live:
        place = client.tables.follow("corner", live)
        assert (place.place.role, place.place.marker) == ("seated", "X")
        place.close()


def test_an_error_of_a_subscriber_does_not_end_the_others(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    seen: SimpleQueue[Any] = SimpleQueue()

    def fail(value: Any, who: Any) -> None:
        raise ValueError("mine")

    with client.live() as live:
        stock = live.join("board", create=True).map("stock")
        stock.subscribe(fail)
        stock.subscribe(lambda value, who: seen.put(value))
        stock.set("lamp", 1).wait()
        assert seen.get(timeout=60) == {"lamp": 1}
        with pytest.raises(BadInput, match="must be a function"):
            stock.subscribe(3)  # type: ignore[arg-type]
    assert [record.getMessage() for record in caplog.records] == ["a subscriber failed"]


def test_a_server_that_cannot_be_reached_is_named() -> None:
    with (
        Client("http://127.0.0.1:9", patience_s=0) as client,
        pytest.raises(Unavailable, match=r"cannot connect to http://127\.0\.0\.1:9"),
    ):
        client.send("q", 1)
