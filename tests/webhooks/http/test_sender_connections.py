"""Connections are kept, counted and never trusted blindly."""

import asyncio
import os
import resource
import socket
from contextlib import AsyncExitStack

import pytest

from onceward import limits
from onceward.clock import Clock, boot_ns
from onceward.testing.clock import VirtualClock, run_virtual
from onceward.webhooks.http.sender import Sender
from tests.webhooks.http.endpoint import OK, Gate, Request, Wire, answering, endpoint, full, hanging
from tests.webhooks.http.posting import LOCAL, LONG, SHORT, failure, post


class Time:
    """A clock that a test can set ahead."""

    def __init__(self) -> None:
        self.ahead_ns = 0

    def __call__(self) -> int:
        return boot_ns() + self.ahead_ns

    def pass_s(self, seconds: float) -> None:
        self.ahead_ns += int(seconds * 1e9)


class Leaver:
    """Answers the first request of a connection, and does this with those that follow."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces
        self.seen: set[int] = set()

    async def __call__(self, request: Request, wire: Wire) -> None:
        if request.connection not in self.seen:
            self.seen.add(request.connection)
            await wire.send(OK)
        else:
            await wire.send(*self.pieces)
            await wire.end()


async def no_longer_idle(sender: Sender) -> None:
    while sender.idle:  # noqa: ASYNC110 -- nothing tells of it
        await asyncio.sleep(0)


async def test_a_request_that_meets_the_end_of_a_kept_connection_is_sent_again_and_counted(
    sender: Sender,
) -> None:
    async with endpoint(Leaver()) as there:
        assert (await post(sender, there)).sent == 1
        answer = await post(sender, there)
    assert (answer.status, answer.sent) == (200, 2)
    assert sender.repeated == 1
    assert [request.connection for request in there.requests] == [1, 1, 2]


async def test_it_is_sent_again_only_once(sender: Sender) -> None:
    async with endpoint(answering(OK)) as there:
        await post(sender, there)
        there.behaviour = answering(b"", end=True)
        failed = await failure(post(sender, there))
        assert failed.message == "the connection was closed without a response; check the receiver"
        assert failed.sent == 2
    assert [request.connection for request in there.requests] == [1, 1, 2]


async def test_it_is_not_sent_again_once_an_answer_has_begun(sender: Sender) -> None:
    async with endpoint(Leaver(b"H")) as there:
        await post(sender, there)
        failed = await failure(post(sender, there))
        assert "was closed in the middle" in failed.message
        assert failed.sent == 1
    assert len(there.requests) == 2


async def test_it_is_not_sent_again_when_the_time_is_over(sender: Sender) -> None:
    async with endpoint(answering(OK)) as there:
        await post(sender, there)
        there.behaviour = hanging
        assert (await failure(post(sender, there, total_s=SHORT))).sent == 1
    assert len(there.requests) == 2


async def test_a_kept_connection_that_was_closed_is_not_used(sender: Sender) -> None:
    async def answer_and_leave(request: Request, wire: Wire) -> None:
        await wire.send(OK)
        await wire.end()

    async with endpoint(answer_and_leave) as there:
        for _ in range(3):
            assert (await post(sender, there)).sent == 1
            await no_longer_idle(sender)
        assert there.connections == 3
    assert sender.repeated == 0


@pytest.mark.parametrize("extra", [OK, b"x", b"\r\n\r\nx"])
async def test_a_connection_with_more_than_an_answer_on_it_is_not_kept(
    sender: Sender, extra: bytes
) -> None:
    async with endpoint(answering(OK + extra)) as there:
        assert (await post(sender, there)).body == b"ok"
        await there.left.wait()
        assert sender.idle == 0
        assert (await post(sender, there)).sent == 1
        assert there.connections == 2


async def test_a_connection_on_which_something_comes_unasked_is_not_kept(sender: Sender) -> None:
    wires = []

    async def answer(request: Request, wire: Wire) -> None:
        await wire.send(OK)
        wires.append(wire)

    async with endpoint(answer) as there:
        await post(sender, there)
        await wires[0].send(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        await there.left.wait()
        answer_ = await post(sender, there)
        assert (answer_.status, answer_.sent) == (200, 1)


async def test_a_response_that_came_before_its_request_is_not_taken_for_its_answer(
    sender: Sender,
) -> None:
    early = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nearly"
    async with AsyncExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listening.setblocking(False)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        loop = asyncio.get_running_loop()
        posting = asyncio.create_task(post(sender, url))
        there, _ = await loop.sock_accept(listening)
        stack.enter_context(there)
        await loop.sock_recv(there, 65_536)
        await loop.sock_sendall(there, OK)
        assert (await posting).body == b"ok"
        # It arrives, and before the loop has read it the next request is made.
        there.setblocking(True)
        there.sendall(early)
        posting = asyncio.create_task(post(sender, url))
        again, _ = await loop.sock_accept(listening)
        stack.enter_context(again)
        await loop.sock_recv(again, 65_536)
        await loop.sock_sendall(again, OK)
        answer = await posting
        assert (answer.body, answer.sent) == (b"ok", 1)


def test_a_connection_without_a_request_is_closed_after_a_while() -> None:
    async def main() -> None:
        clock = VirtualClock()
        sender = Sender(LOCAL, clock=clock)
        async with endpoint(answering(OK)) as there:
            await post(sender, there)
            began_ns = clock.elapsed_ns()
            await there.left.wait()
            idle_s = (clock.elapsed_ns() - began_ns) / 1e9
            assert limits.IDLE_CONNECTION_S <= idle_s < limits.IDLE_CONNECTION_S * 1.5
            assert sender.open == 0
            assert (await post(sender, there)).sent == 1
        await sender.close()

    run_virtual(main())


async def test_a_connection_that_should_be_closed_already_is_not_used() -> None:
    time = Time()
    sender = Sender(LOCAL, clock=Clock(boot_ns=time))
    async with endpoint(answering(OK)) as there:
        await post(sender, there)
        time.pass_s(limits.IDLE_CONNECTION_S)
        await post(sender, there)
        assert there.connections == 2
    await sender.close()


async def test_an_old_connection_is_not_kept_so_that_names_can_move() -> None:
    time = Time()
    sender = Sender(LOCAL, clock=Clock(boot_ns=time))
    async with endpoint(answering(OK)) as there:
        for _ in range(int(limits.CONNECTION_S_MAX / 3)):
            await post(sender, there)
            assert there.connections == 1
            time.pass_s(3)
        await post(sender, there)
        assert sender.idle == 0
        await post(sender, there)
        assert there.connections == 2
    await sender.close()


async def test_few_connections_are_kept_and_those_used_last(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IDLE_CONNECTIONS_MAX", 2)
    async with AsyncExitStack() as stack:
        there = [await stack.enter_async_context(endpoint(answering(OK))) for _ in range(4)]
        for one in there:
            await post(sender, one)
            assert sender.idle <= 2
        for one in reversed(there):
            await post(sender, one)
        assert [one.connections for one in there] == [2, 2, 1, 1]


async def test_a_host_gets_no_more_connections_than_it_may() -> None:
    sender = Sender(LOCAL, sends_per_host_max=2)
    gate = Gate()
    async with endpoint(gate) as there, endpoint(answering(OK)) as other:
        posts = [asyncio.create_task(post(sender, there)) for _ in range(6)]
        await there.arrived(2)
        assert (await post(sender, other)).status == 200, "others are not concerned"
        assert len(there.requests) == 2
        gate.opened.set()
        assert [(await each).status for each in posts] == [200] * 6
        assert there.connections == 2
    await sender.close()


async def test_there_are_no_more_requests_under_way_than_there_may_be() -> None:
    sender = Sender(LOCAL, sends_max=2)
    gate = Gate()
    async with endpoint(gate) as one, endpoint(gate) as two:
        posts = [asyncio.create_task(post(sender, there)) for there in (one, two, one, two)]
        await one.arrived(1)
        await two.arrived(1)
        assert len(one.requests) + len(two.requests) == 2
        failed = await failure(post(sender, one, total_s=SHORT))
        assert "too many concurrent requests" in failed.message
        assert failed.ours
        assert failed.sent == 0
        gate.opened.set()
        assert [(await each).status for each in posts] == [200] * 4
    await sender.close()


async def test_a_request_that_is_cancelled_ends_its_connection_and_makes_room() -> None:
    sender = Sender(LOCAL, sends_max=1)
    async with endpoint(hanging) as there:
        posting = asyncio.create_task(post(sender, there))
        await there.arrived(1)
        posting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await posting
        await there.left.wait()
        there.behaviour = answering(OK)
        assert (await post(sender, there)).status == 200
    await sender.close()


async def test_closing_ends_what_is_under_way_and_what_is_kept(sender: Sender) -> None:
    async with endpoint(hanging) as there, endpoint(answering(OK)) as other:
        await post(sender, other)
        posting = asyncio.create_task(post(sender, there))
        await there.arrived(1)
        await sender.close()
        assert "without a response" in (await failure(posting)).message  # type: ignore[arg-type]
        await there.left.wait()
        await other.left.wait()
        assert sender.open == sender.idle == 0
        failed = await failure(post(sender, other))
        assert (failed.message, failed.sent) == (
            "the sender is closed; repeat the call after the restart",
            0,
        )
        await sender.close()


async def test_a_port_on_which_nobody_listens_is_told(sender: Sender) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        failed = await failure(post(sender, f"http://127.0.0.1:{port}/"))
    assert failed.message == f"127.0.0.1 refused the connection to port {port}"
    assert failed.sent == 0
    assert not failed.ours
    assert failed.took_s > 0


async def test_who_takes_no_connection_is_not_waited_for_longer_than_told(
    sender: Sender,
) -> None:
    with full(("127.0.0.1", 0)) as port:
        url = f"http://127.0.0.1:{port}/"
        failed = await failure(post(sender, url, connect_s=SHORT))
        assert (failed.message, failed.sent) == ("no connection within 0.25 s", 0)
        failed = await failure(post(sender, url, connect_s=LONG, total_s=SHORT))
        assert (failed.message, failed.sent) == ("no connection within 0.25 s", 0)


async def test_files_that_have_run_out_are_not_the_fault_of_the_host(sender: Sender) -> None:
    async with endpoint(answering(OK)) as there:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest_free = os.dup(0)
        os.close(lowest_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
        try:
            failed = await failure(post(sender, there))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert failed.ours
        assert failed.message == "no connection to 127.0.0.1: Too many open files"
        assert (await post(sender, there)).status == 200


async def test_calls_leave_the_engine_its_file_descriptors(sender: Sender) -> None:
    async with endpoint(answering(OK)) as there:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest_free = os.dup(0)
        os.close(lowest_free)
        few = lowest_free + min(limits.DESCRIPTORS_RESERVED, lowest_free // 4)
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
        try:
            failed = await failure(post(sender, there))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert (failed.ours, failed.sent) == (True, 0)
        assert failed.message == "no connection to 127.0.0.1: too many open files"
        assert (sender.open, (await post(sender, there)).status) == (0, 200)


async def test_proxies_of_the_environment_are_ignored(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with endpoint(answering(OK)) as there, endpoint(answering(OK)) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url(""))
        assert (await post(sender, there)).status == 200
        assert proxy.connections == 0
