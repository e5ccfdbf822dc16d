"""A server in a process of its own, and plain HTTP calls to it."""

import asyncio
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import aiohttp

from onceward.clock import Clock

ROOT = Path(__file__).parent.parent.parent
_START_S = 30.0
_POLL_S = 0.02


class Answer(NamedTuple):
    """What was answered."""

    status: int
    kind: str
    """Its content type."""
    body: Any

    @property
    def code(self) -> str:
        """Of a problem document, whose members say the same as the status."""
        assert self.kind == "application/problem+json", self
        assert self.body["status"] == self.status
        code: str = self.body["code"]
        return code


class Process:
    """`onceward serve` with some options. As a context it is started, and stopped in the end."""

    def __init__(self, *options: str, environment: Mapping[str, str] | None = None) -> None:
        self._options = options
        self._environment = {**os.environ, **(environment or {})}

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "onceward", "serve", "--port", "0", *self._options),
            cwd=ROOT,
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(_START_S):
            line = (await self._process.stdout.readline()).decode()
        found = re.search(r"http://[\d.:]+", line)
        assert found is not None, f"it did not start: {line!r}"
        self.url = found[0]
        self._session = aiohttp.ClientSession(self.url)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self._session.close()
        if self._process.returncode is None:
            self._process.terminate()
        await self._process.communicate()

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ended(self) -> int:
        """The exit code, once it has ended by itself."""
        return await self._process.wait()

    async def call(self, method: str, path: str, document: Any = None, **headers: str) -> Answer:
        """The answer to a request."""
        options = {} if document is None else {"json": document}
        async with self._session.request(method, path, headers=headers, **options) as response:
            return Answer(response.status, response.content_type, await response.json())

    async def send(self, key: str, body: Any = "x") -> Answer:
        """The answer to a message for the queue "mail"."""
        return await self.call("POST", "/v1/inbox/mail", {"body": body, "key": key})

    async def until(self, status: int, path: str) -> Answer:
        """The first answer with a status: asked again and again."""
        clock = Clock()
        while (answer := await self.call("GET", path)).status != status:
            await clock.sleep(_POLL_S)
        return answer
