"""A server whose timers call URLs, as a process of its own."""

import asyncio
from pathlib import Path
from typing import Any, Self

import pytest
from standardwebhooks.webhooks import Webhook

from onceward.errors import OncewardError
from onceward.web.auth import ApiKey
from onceward.web.serve import outward_of
from onceward.web.settings import Settings
from tests.client.served import read_message
from tests.web.wire import ANSWER_S, Connection, served


class Receiver:
    """Answers calls with the statuses it is given, the last one for ever."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.calls: asyncio.Queue[tuple[str, dict[str, str], bytes]] = asyncio.Queue()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()

    async def call(self) -> tuple[str, dict[str, str], bytes]:
        """The next one: its path, headers and body."""
        return await asyncio.wait_for(self.calls.get(), ANSWER_S)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raw = await read_message(reader)
        head, _, body = raw.partition(b"\r\n\r\n")
        line, *lines = head.decode().split("\r\n")
        headers = {n.lower(): v.strip() for n, _, v in (text.partition(":") for text in lines)}
        self.calls.put_nowait((line.split()[1], headers, body))
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        writer.write(b"HTTP/1.1 %d Said\r\nContent-Length: 0\r\n\r\n" % status)
        writer.close()


async def ask(connection: Connection, method: str, path: str, body: Any = None) -> Any:
    await connection.ask(method, path, body)
    status, found = await connection.answer()
    assert status < 300, found
    return found


async def until_ended(connection: Connection, id_: str) -> Any:
    """The timer once its call has come to something."""
    async with asyncio.timeout(ANSWER_S):
        while True:
            found = await ask(connection, "GET", f"/v1/timers/{id_}")
            if found["state"] not in ("active", "firing"):
                return found


async def test_in_dev_mode_a_timer_may_call_the_server_itself(tmp_path: Path) -> None:
    async with served(tmp_path, "--database", "memory://") as site:
        connection = await site.connect()
        url = f"http://127.0.0.1:{site.port}/v1/inbox/orders"
        message = {"body": {"item": "lamp"}, "key": "order-1"}
        timer = {"id": "t", "url": url, "delay_ms": 10, "body": message}
        await ask(connection, "POST", "/v1/timers", timer)
        asked = {"wait_ms": 20_000}
        [job] = (await ask(connection, "POST", "/v1/queues/orders/claim", asked))["jobs"]
        assert (job["body"], job["key"]) == ({"item": "lamp"}, "order-1")
        done = await until_ended(connection, "t")
        assert (done["state"], done["last"]["attempts"][0]["outcome"]) == ("success", "succeeded")
        assert done["last"]["attempts"][0]["said"].startswith("202 Accepted")
        await connection.ask("GET", "/metrics")
        head = (await connection.reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length: ")[1].split()[0])
        text = (await connection.reader.readexactly(length)).decode()
        assert 'onceward_webhooks_total{outcome="delivered"} 1' in text
        assert "onceward_webhook_lateness_seconds_count 1" in text
        await connection.close()
        assert await site.stop() == 0


async def test_a_plain_timer_posts_to_its_url_and_its_id_signed(tmp_path: Path) -> None:
    async with (
        served(tmp_path, "--database", "memory://", "--timers-append-id") as site,
        Receiver(500, 204) as receiver,
    ):
        connection = await site.connect()
        plain = {"hours": 0, "minutes": 0, "seconds": 0, "url": f"{receiver.url}/hook?a=b"}
        id_ = (await ask(connection, "POST", "/timers", plain))["id"]
        path, first, body = await receiver.call()
        assert path == f"/hook/{id_}?a=b"
        endpoint = await ask(connection, "GET", "/v1/endpoints/default?secret=true")
        Webhook(endpoint["secrets"][0]["secret"]).verify(body, first)
        _, second, _ = await receiver.call()
        assert second["webhook-id"] == first["webhook-id"]
        done = await until_ended(connection, id_)
        assert [a["outcome"] for a in done["last"]["attempts"]] == ["failed", "succeeded"]
        plain = await ask(connection, "GET", f"/timers/{id_}")
        assert plain == {"id": id_, "time_left": 0, "status": "SUCCESS"}
        await connection.close()


async def test_a_secret_that_is_rotated_verifies_beside_the_old_one(tmp_path: Path) -> None:
    async with (
        served(tmp_path, "--database", "memory://") as site,
        Receiver(410) as receiver,
    ):
        connection = await site.connect()
        asked = {"id": "e", "url": receiver.url, "headers": {"Content-Type": "text/x"}}
        made = await ask(connection, "POST", "/v1/endpoints", asked)
        rotated = await ask(connection, "POST", "/v1/endpoints/e/rotate", {})
        test = await ask(connection, "POST", "/v1/endpoints/e/test")
        _, headers, body = await receiver.call()
        for secret in (made["secrets"][0], rotated["secrets"][0]):
            verified = Webhook(secret["secret"]).verify(body, headers)
            assert verified == {"type": "test", "endpoint": "e"}
        assert headers["content-type"] == "text/x"
        failed = await until_ended(connection, test["id"])
        assert failed["state"] == "failed"
        health = (await ask(connection, "GET", "/v1/endpoints/e"))["health"]
        assert health["failing"] is True
        assert "410" in health["said"]
        await connection.close()


def test_the_settings_say_how_calls_are_made() -> None:
    found = outward_of(
        Settings(
            webhook_allow=("10.0.0.0/8",),
            webhook_ports=(443,),
            webhook_rate=5.0,
            webhook_attempts=3,
            webhook_connect_s=1.0,
            webhook_timeout_s=2.0,
            webhook_calls=7,
        )
    )
    assert found is not None
    assert "10.0.0.0/8" in found.allow
    assert "127.0.0.0/8:*" in found.allow  # in dev mode
    assert (found.ports, found.rate, found.attempts_max) == ((443,), 5.0, 3)
    assert (found.connect_s, found.total_s, found.concurrency) == (1.0, 2.0, 7)
    assert outward_of(Settings(webhooks=False)) is None


def test_with_keys_this_machine_is_not_called() -> None:
    found = outward_of(Settings(keys=(ApiKey("a", "sha256:0", ("all",)),)))
    assert found is not None
    assert found.allow == ()


@pytest.mark.parametrize("allow", ["10.0.0.0/33", "a b", "intranet:x", "10.0.0.1:0"])
def test_a_list_of_what_is_allowed_that_cannot_be_meant_is_refused(allow: str) -> None:
    with pytest.raises(OncewardError, match="webhook_allow") as refused:
        outward_of(Settings(webhook_allow=(allow,)))
    assert refused.value.code == "bad_settings"
