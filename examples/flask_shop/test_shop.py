"""The tests of the shop: with a database in memory, whose handlers run in this process."""

import json
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from flask import Flask
from werkzeug.serving import make_server

from examples.flask_shop.shop import Order, create_app, jobs, pay


@pytest.fixture
def web() -> Iterator[Flask]:
    web = create_app({"ONCEWARD_DATABASE": "memory://", "ONCEWARD_WORK": True, "TESTING": True})
    with web.app_context():
        yield web
        jobs.site.close()


def test_an_order_is_paid_once(web: Flask) -> None:
    client = web.test_client()
    answers = [client.put("/orders/7", json={"item": "lamp"}) for _ in range(3)]
    assert {answer.status_code for answer in answers} == {202}
    [id_] = {answer.json["job"] for answer in answers if answer.json}
    assert jobs.app.result(id_) == f"receipt {id_}"
    assert client.get("/orders/7").json == {"order": "7", "paid": True}
    assert client.get("/orders/8").json == {"order": "8", "paid": False}


def test_an_order_with_another_item_is_rejected(web: Flask) -> None:
    client = web.test_client()
    client.put("/orders/7", json={"item": "lamp"})
    answer = client.put("/orders/7", json={"item": "sofa"})
    assert (answer.status_code, answer.json and answer.json["code"]) == (422, "key_reused")


def test_a_handler_is_a_function(web: Flask) -> None:
    class Job:
        body = Order("7", "lamp")
        id = "1"
        tx: Any = type("Tx", (), {"put": lambda self, *written: None})()

        def step(self, name: str, fn: Any, *arguments: Any) -> Any:
            return fn(*arguments)

    assert pay(Job()) == "receipt 1"  # type: ignore[arg-type]


def test_four_threads_order_at_the_same_time(web: Flask) -> None:
    """50 requests each, to a server with threads: 200 answers, and one job for each order."""
    server = make_server("127.0.0.1", 0, web, threaded=True)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()

    def put(number: int) -> tuple[int, str]:
        asked = urllib.request.Request(
            f"http://127.0.0.1:{server.port}/orders/{number}",
            data=json.dumps({"item": f"item {number}"}).encode(),
            headers={"Content-Type": "application/json"},
            method="PUT",
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return answer.status, json.load(answer)["job"]

    try:
        with ThreadPoolExecutor(4) as pool:
            # Each order is sent twice, by different threads.
            answers = list(pool.map(put, [number % 100 for number in range(200)]))
    finally:
        server.shutdown()
        serving.join()
    assert [status for status, _ in answers] == [202] * 200
    ids = {id_ for _, id_ in answers}
    assert len(ids) == 100
    for id_ in ids:
        assert jobs.app.result(id_) == f"receipt {id_}"
    stored = jobs.app.run(lambda tx: tx.scan("orders", limit=1_000))
    assert sorted(int(row.key[1]) for row in stored) == list(range(100))
    assert {row.value["receipt"] for row in stored} == {f"receipt {id_}" for id_ in ids}
