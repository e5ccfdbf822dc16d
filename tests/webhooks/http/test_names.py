"""Where names lead is looked up once, judged, and pinned."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

import pytest

from onceward import limits
from onceward.clock import Clock
from onceward.errors import AddressRefused, Unreachable
from onceward.webhooks.http.addresses import Guard
from onceward.webhooks.http.names import Names, look_up
from onceward.webhooks.http.sender import Sender
from tests.webhooks.http.endpoint import OK, answering, endpoint, full
from tests.webhooks.http.posting import LONG, SHORT, failure, post

GUARD = Guard(["10.0.0.0/8", "127.0.0.1:*"])


class Zone:
    """What names lead to; each time to the next of the answers, then always to the last."""

    def __init__(self, *answers: Sequence[str] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, name: str) -> Sequence[str]:
        self.asked.append(name)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        await self.gate.wait()
        if isinstance(answer, Exception):
            raise answer
        return answer


class Time:
    def __init__(self) -> None:
        self.now_ns = 1

    def __call__(self) -> int:
        return self.now_ns


async def test_the_addresses_come_in_their_order_each_once_and_not_too_many() -> None:
    zone = Zone(["10.0.0.2", "10.0.0.1", "10.0.0.2", *(f"10.0.1.{n}" for n in range(9))])
    addresses = await Names(GUARD, zone).addresses(GUARD.parse("http://a.example/"))
    assert list(addresses[:2]) == ["10.0.0.2", "10.0.0.1"]
    assert len(addresses) == limits.ADDRESSES_TRIED_MAX


async def test_all_addresses_are_judged_also_those_that_would_not_be_tried() -> None:
    good = [f"10.0.0.{n}" for n in range(20)]
    for bad in ("127.0.0.2", "169.254.169.254", "::1", "fe80::1%eth0", "nonsense"):
        names = Names(GUARD, Zone([*good, bad]))
        with pytest.raises(AddressRefused):
            await names.addresses(GUARD.parse("http://a.example/"))


async def test_an_address_in_place_of_a_name_is_not_looked_up() -> None:
    zone = Zone(["127.0.0.2"])
    target = GUARD.parse("http://0xa.1/")
    assert await Names(GUARD, zone).addresses(target) == ["10.0.0.1"]
    assert zone.asked == []


async def test_what_is_known_is_judged_for_each_port() -> None:
    guard = Guard(["a.example", "10.0.0.1:8080"])
    names = Names(guard, Zone(["10.0.0.1"]))
    for url in ("http://a.example/", "http://b.example:8080/"):
        assert await names.addresses(guard.parse(url))
    with pytest.raises(AddressRefused):
        await names.addresses(guard.parse("http://b.example/"))


async def test_a_name_is_looked_up_anew_after_a_few_seconds_or_when_forgotten() -> None:
    time, zone = Time(), Zone(["10.0.0.1"], ["10.0.0.2"], ["10.0.0.3"])
    names = Names(GUARD, zone, time)
    target = GUARD.parse("http://a.example/")

    async def looked_up() -> list[str]:
        return [*await names.addresses(target), *await names.addresses(target)]

    assert await looked_up() == ["10.0.0.1"] * 2
    time.now_ns += int(limits.NAME_S * 1e9)
    assert await looked_up() == ["10.0.0.2"] * 2
    names.forget("a.example")
    assert await looked_up() == ["10.0.0.3"] * 2
    assert len(zone.asked) == 3


async def test_so_many_names_are_kept_in_mind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NAMES_KNOWN_MAX", 2)
    zone = Zone(["10.0.0.1"])
    names = Names(GUARD, zone)
    for name in "abcab":
        await names.addresses(GUARD.parse(f"http://{name}/"))
    assert zone.asked == ["a", "b", "c", "a", "b"]


async def test_who_asks_for_the_same_name_waits_for_the_same_answer() -> None:
    zone = Zone(["10.0.0.1"])
    zone.gate.clear()
    names = Names(GUARD, zone)
    target = GUARD.parse("http://a.example/")
    asking = [asyncio.create_task(names.addresses(target)) for _ in range(5)]
    await asyncio.sleep(0)
    asking[0].cancel()
    await asyncio.sleep(0)
    zone.gate.set()
    results = await asyncio.gather(*asking, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1:] == [["10.0.0.1"]] * 4, "who gives up does not spoil it for the others"
    assert zone.asked == ["a.example"]


async def test_a_failure_is_told_to_all_and_not_remembered() -> None:
    zone = Zone(socket.gaierror(socket.EAI_NONAME, "unknown"), ["10.0.0.1"])
    names = Names(GUARD, zone)
    target = GUARD.parse("http://a.example/")
    results = await asyncio.gather(
        *(names.addresses(target) for _ in range(3)), return_exceptions=True
    )
    assert [str(each) for each in results] == ["unknown host a.example [unreachable]"] * 3
    assert len({id(each) for each in results}) == 3
    assert await names.addresses(target) == ["10.0.0.1"]


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (socket.gaierror(socket.EAI_NONAME, "x"), "unknown host a.example"),
        (socket.gaierror(socket.EAI_NODATA, "x"), "unknown host a.example"),
        (socket.gaierror(socket.EAI_AGAIN, "x"), "no name server responded for a.example"),
        (socket.gaierror(socket.EAI_FAIL, "broken"), "cannot resolve a.example: .*broken"),
        (OSError("out of files"), "cannot resolve a.example: out of files"),
        (UnicodeError("label too long"), "unknown host a.example"),
    ],
)
async def test_a_person_is_told_why_there_is_no_address(error: Exception, why: str) -> None:
    with pytest.raises(Unreachable, match=why) as failed:
        await Names(GUARD, Zone(error)).addresses(GUARD.parse("http://a.example/"))
    assert not failed.value.ours


async def test_it_is_our_own_trouble_when_there_is_no_thread_for_it() -> None:
    zone = Zone(RuntimeError("can't start new thread"))
    with pytest.raises(Unreachable, match="new thread") as failed:
        await Names(GUARD, zone).addresses(GUARD.parse("http://a.example/"))
    assert failed.value.ours


async def test_a_name_without_addresses_is_told() -> None:
    with pytest.raises(Unreachable, match="has no addresses"):
        await Names(GUARD, Zone([])).addresses(GUARD.parse("http://a.example/"))


async def test_lookups_that_hang_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOOKUPS_MAX", 2)
    zone = Zone(["10.0.0.1"])
    zone.gate.clear()
    names = Names(GUARD, zone)
    targets = [GUARD.parse(f"http://{name}/") for name in "abcd"]
    asking = [asyncio.create_task(names.addresses(target)) for target in targets]
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(zone.asked) == 2
    zone.gate.set()
    assert await asyncio.gather(*asking) == [["10.0.0.1"]] * 4


async def test_closing_ends_the_waiting() -> None:
    zone = Zone(["10.0.0.1"])
    zone.gate.clear()
    names = Names(GUARD, zone)
    asking = asyncio.create_task(names.addresses(GUARD.parse("http://a.example/")))
    await asyncio.sleep(0)
    names.close()
    with pytest.raises(Unreachable, match="closed"):
        await asking


async def test_the_machine_is_asked_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(name: str, port: None, **_: Any) -> list[Any]:
        if name == "none.example":
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(2, 1, 6, "", ("10.0.0.1", 0)), (10, 1, 6, "", ("fd00::1", 0, 0, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    assert await look_up("a.example") == ["10.0.0.1", "fd00::1"]
    with pytest.raises(socket.gaierror):
        await look_up("none.example")


async def test_an_answer_that_changes_between_check_and_connection_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The name leads to a good address when it is judged, and to a bad one ever after."""
    answers = ["127.0.0.1", "127.0.0.2"]
    asked = []

    def rebind(name: str, *_: Any, **__: Any) -> list[Any]:
        asked.append(name)
        address = answers.pop(0) if len(answers) > 1 else answers[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", rebind)
    async with endpoint(answering(OK), host="127.0.0.1") as good:
        server = await asyncio.start_server(good.serve, "127.0.0.2", good.port)
        async with server:
            time = Time()
            sender = Sender(GUARD, clock=Clock(boot_ns=time))
            url = good.url(host="rebind.example")
            assert (await post(sender, url)).status == 200
            assert asked == ["rebind.example"], "not asked again for the connection"
            assert good.requests[0].headers["host"] == f"rebind.example:{good.port}"
            time.now_ns += int(limits.NAME_S * 1e9)
            with pytest.raises(AddressRefused, match=r"127\.0\.0\.2"):
                await post(sender, url)
            assert good.connections == 1
            await sender.close()


async def test_a_name_with_one_bad_address_is_not_connected_to_at_all() -> None:
    async with endpoint(answering(OK)) as there:
        sender = Sender(GUARD, lookup=Zone(["127.0.0.1", "192.168.0.1"]))
        with pytest.raises(AddressRefused):
            await post(sender, there.url(host="a.example"))
        assert there.connections == 0
        await sender.close()


async def test_when_an_address_is_dead_the_next_one_is_tried() -> None:
    guard = Guard(["a.example:*"])
    async with endpoint(answering(OK)) as there:
        zone = Zone(["127.0.0.3", "127.0.0.2", "127.0.0.1"])
        sender = Sender(guard, lookup=zone)
        assert (await post(sender, there.url(host="a.example"))).status == 200
        await sender.close()


async def test_an_address_that_hangs_does_not_take_the_time_of_the_next_one() -> None:
    guard = Guard(["a.example:*"])
    async with endpoint(answering(OK)) as there:
        with full(("127.0.0.2", there.port)):
            sender = Sender(guard, lookup=Zone(["127.0.0.2", "127.0.0.1"]))
            answer = await post(sender, there.url(host="a.example"), connect_s=4 * SHORT)
            assert answer.status == 200
            await sender.close()


async def test_when_all_addresses_are_dead_the_name_is_looked_up_anew() -> None:
    guard = Guard(["a.example:*"])
    async with endpoint(answering(OK)) as there:
        zone = Zone(["127.0.0.2"], ["127.0.0.1"])
        sender = Sender(guard, lookup=zone)
        url = there.url(host="a.example")
        assert "refused the connection" in (await failure(post(sender, url))).message
        assert (await post(sender, url)).status == 200
        await sender.close()


async def test_a_lookup_that_hangs_is_not_waited_for_longer_than_told() -> None:
    zone = Zone(["127.0.0.1"])
    zone.gate.clear()
    sender = Sender(GUARD, lookup=zone)
    failed = await failure(post(sender, "http://a.example/", connect_s=SHORT))
    assert (failed.message, failed.sent) == (
        "cannot resolve a.example within 0.25 s; check its DNS records",
        0,
    )
    failed = await failure(post(sender, "http://a.example/", connect_s=LONG, total_s=SHORT))
    assert (failed.message, failed.sent) == ("no connection within 0.25 s", 0)
    assert zone.asked == ["a.example"], "one name has one lookup at a time"
    await sender.close()
