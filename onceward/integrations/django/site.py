"""The application of a Django project, from its settings."""

import functools
import threading
from collections.abc import Callable
from typing import Any, Unpack

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections, transaction

from onceward import OncewardError
from onceward.integrations.site import Jobs, Site
from onceward.sync import SendKeywords, is_async

_NAMES = ("DATABASE", "SERVER", "KEY", "WORK")


class DjangoJobs(Jobs):
    """Handlers and jobs of a Django project."""

    def __init__(self) -> None:
        super().__init__()
        self._site: Site | None = None
        self._lock = threading.Lock()

    @property
    def site(self) -> Site:
        with self._lock:
            if self._site is None:
                self._site = self.declare(_site(), _with_connections)
            return self._site

    def admit(self) -> None:
        """Check the settings. Raises `ImproperlyConfigured`."""
        _ = self.site

    def reset(self) -> None:
        """Stop, and read the settings again on next use. For tests that change the settings."""
        with self._lock:
            site, self._site = self._site, None
        if site is not None:
            site.close()

    def send_on_commit(
        self,
        queue: str,
        body: Any,
        *,
        key: str | None = None,
        using: str | None = None,
        **options: Unpack[SendKeywords],
    ) -> None:
        """Send a job when the current database transaction commits; at once without one.

        If the process ends between the commit and the message, the message is lost. Where that
        must not happen, use an outbox (`onceward.sql`).
        """
        send = functools.partial(self.send, queue, body, key=key, **options)
        transaction.on_commit(send, using=using)


def _site() -> Site:
    found = getattr(settings, "ONCEWARD", None)
    if not isinstance(found, dict):
        raise ImproperlyConfigured('set ONCEWARD = {"DATABASE": "postgresql://…"} in the settings')
    unknown = sorted(set(found) - set(_NAMES))
    if unknown:
        raise ImproperlyConfigured(
            f"ONCEWARD has the unknown setting {unknown[0]!r}; known are {', '.join(_NAMES)}"
        )
    try:
        return Site(
            database=found.get("DATABASE", ""),
            server=found.get("SERVER", ""),
            key=found.get("KEY"),
            work=found.get("WORK", False),
        )
    except OncewardError as error:
        raise ImproperlyConfigured(f"ONCEWARD: {error.message}") from error


def _with_connections(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A plain handler whose thread has usable database connections, as a request has."""
    if is_async(fn):
        return fn

    @functools.wraps(fn)
    def call(job: Any) -> Any:
        close_old_connections()
        try:
            return fn(job)
        finally:
            close_old_connections()

    return call
