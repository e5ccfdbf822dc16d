"""The application or client of a web framework: declared early, opened on first use."""

import threading
from collections.abc import Callable
from typing import Any, Unpack

import msgspec

from onceward import BadInput, Receipt, SyncTransaction
from onceward.sync import (
    App,
    Client,
    Declare,
    HandlerFunction,
    JobKeywords,
    QueueKeywords,
    SendKeywords,
    Transaction,
)

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Makes the function of a handler run within the framework."""


class Site:
    """An application, or the client of a server, for one configuration of a framework."""

    def __init__(
        self,
        *,
        database: str = "",
        server: str = "",
        key: str | None = None,
        work: bool = False,
        prefix: str = "",
    ) -> None:
        """With `work`, the handlers run in this process. `prefix` is that of the settings in
        messages. Raises `BadInput`."""
        if bool(database) == bool(server):
            raise BadInput(
                f"set either {prefix}DATABASE (sqlite:///…, postgresql://…) or {prefix}SERVER, the "
                f"URL of a server (http://…); {'both are' if database else 'neither is'} set"
            )
        if not isinstance(work, bool):
            raise BadInput(f"{prefix}WORK must be True or False, not {work!r:.50}")
        self.declared = App(database or "memory://")
        """The application with its handlers, not yet started."""
        self.handlers: dict[str, HandlerFunction[Any, Any, Any, Any]] = {}
        self._has_database = bool(database)
        self._work = work
        self._client = Client(server, key=key) if server else None
        self._started = False
        self._lock = threading.Lock()

    @property
    def app(self) -> App:
        """The running application. It starts in each process on first use. Raises `BadInput`
        without a database."""
        if not self._has_database:
            raise BadInput("there is no database in the settings: use the client of the server")
        if not self._started:
            with self._lock:
                if not self._started:
                    self.declared.start(work=self._work)
                    self._started = True
        return self.declared

    @property
    def client(self) -> Client:
        """The client of the server. Raises `BadInput` without a server."""
        if self._client is None:
            raise BadInput("there is no server in the settings: use the application")
        return self._client

    @property
    def has_database(self) -> bool:
        """Whether it is an application, not the client of a server."""
        return self._has_database

    def send(
        self,
        queue: str,
        body: Any,
        *,
        key: str | None = None,
        tx: Transaction | SyncTransaction | None = None,
        **options: Unpack[SendKeywords],
    ) -> Receipt:
        """Send a job, by the application or the client."""
        if self._client is None:
            return self.app.send(queue, body, key=key, tx=tx, **options)
        if tx is not None:
            raise BadInput(
                f"a message to the server for the queue {queue!r:.100} cannot be part of a "
                "transaction; omit `tx`"
            )
        dump = getattr(body, "model_dump", None)
        plain = msgspec.to_builtins(body) if dump is None else dump(mode="json")
        sent: Any = dict(options)
        return self._client.send(queue, plain, key=key, **sent)  # type: ignore[return-value]

    def close(self) -> None:
        """Stop the application, or close the client. Idempotent."""
        self._started = False
        self.declared.stop()
        if self._client is not None:
            self._client.close()


class DeclaredHandler(HandlerFunction[Any, Any, Any, Any]):
    """A handler that is declared before its application exists."""

    def __init__(self, jobs: "Jobs", queue: str, fn: Callable[..., Any]) -> None:
        self.queue = queue
        self.__wrapped__ = fn
        self._jobs = jobs

    def __call__(self, job: Any, /) -> Any:
        return self.__wrapped__(job)

    def __repr__(self) -> str:
        return f"<handler {self.__wrapped__.__qualname__} of {self.queue!r}>"

    def enqueue(
        self,
        body: Any,
        *,
        key: str | None = None,
        tx: Transaction | SyncTransaction | None = None,
        **options: Unpack[SendKeywords],
    ) -> Receipt:
        site = self._jobs.site
        if not site.has_database:
            return site.send(self.queue, body, key=key, tx=tx, **options)
        _ = site.app
        return self._declared_in(site).enqueue(body, key=key, tx=tx, **options)

    def result(self, id_: str, *, timeout_s: float | None = None) -> Any:
        site = self._jobs.site
        _ = site.app
        return self._declared_in(site).result(id_, timeout_s=timeout_s)

    def _declared_in(self, site: Site) -> HandlerFunction[Any, Any, Any, Any]:
        found = site.handlers.get(self.queue)
        if found is None:
            raise BadInput(
                f"the handler of {self.queue!r} was declared too late; import its module before "
                "the application is configured"
            )
        return found


class Jobs:
    """Handlers and recurring jobs, declared before the configuration of the framework is known."""

    def __init__(self) -> None:
        self._declarations: list[Callable[[Site, Wrap], None]] = []

    @property
    def site(self) -> Site:
        """The application or client of the current configuration."""
        raise NotImplementedError

    @property
    def app(self) -> App:
        """The running application. It starts in each process on first use."""
        return self.site.app

    @property
    def client(self) -> Client:
        """The client of the server."""
        return self.site.client

    def send(
        self,
        queue: str,
        body: Any,
        *,
        key: str | None = None,
        tx: Transaction | SyncTransaction | None = None,
        **options: Unpack[SendKeywords],
    ) -> Receipt:
        """Send a job, by the application or the client. See `App.send`."""
        return self.site.send(queue, body, key=key, tx=tx, **options)

    def handler(
        self,
        queue: str,
        *,
        lease_s: float = 30.0,
        concurrency: int = 16,
        batch: int = 0,
        **settings: Unpack[QueueKeywords],
    ) -> Declare:
        """Declare a handler. See `App.handler`."""

        def declare(fn: Callable[..., Any]) -> DeclaredHandler:
            if isinstance(fn, HandlerFunction):  # the handler of several queues
                fn = fn.__wrapped__

            def add(site: Site, wrap: Wrap) -> None:
                made = site.declared.handler(
                    queue, lease_s=lease_s, concurrency=concurrency, batch=batch, **settings
                )
                site.handlers[queue] = made(wrap(fn))

            self._declarations.append(add)
            return DeclaredHandler(self, queue, fn)

        return declare

    def queue(self, name: str, **settings: Unpack[QueueKeywords]) -> None:
        """Declare settings of a queue. See `App.queue`."""
        self._declarations.append(lambda site, _: site.declared.queue(name, **settings))

    def every(
        self,
        seconds: float,
        queue: str,
        body: Any = None,
        *,
        name: str | None = None,
        **options: Unpack[JobKeywords],
    ) -> None:
        """Send a job at an interval. See `App.every`."""
        self._declarations.append(
            lambda site, _: site.declared.every(seconds, queue, body, name=name, **options)
        )

    def cron(
        self,
        when: str,
        queue: str,
        body: Any = None,
        *,
        zone: str = "UTC",
        name: str | None = None,
        **options: Unpack[JobKeywords],
    ) -> None:
        """Send a job at the times of a cron expression. See `App.cron`."""
        self._declarations.append(
            lambda site, _: site.declared.cron(when, queue, body, zone=zone, name=name, **options)
        )

    def declare(self, site: Site, wrap: Wrap) -> Site:
        """Declare all of it in an application."""
        for declaration in self._declarations:
            declaration(site, wrap)
        return site
