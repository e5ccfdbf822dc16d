"""Running the handlers of an application, with health checks, until the process is stopped."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from onceward.app import App
from onceward.event_loop import loop_factory
from onceward.web import logs
from onceward.web.application import application_of
from onceward.web.settings import Setting, Settings


def work(
    settings: Settings, announce: Callable[[str], None], found: Sequence[Setting] = ()
) -> None:
    """Run handlers until SIGTERM or SIGINT, then let running ones finish. A second signal ends them
    at once.

    `announce` is called with the address of the health checks once the handlers run; it is empty
    without them. Raises `bad_settings`, errors of `App.start`, and the error that ended the node.
    """
    app = application_of(settings, found)
    logs.set_up(settings.log, settings.log_level)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_work(settings, app, announce))


async def _work(settings: Settings, app: App, announce: Callable[[str], None]) -> None:
    if settings.health_port is None:
        await app.work_until_signal(lambda: announce(""))
        return
    # Here, since workers without health checks need no HTTP server.
    from onceward.web.auth import Auth
    from onceward.web.health_site import HealthSite
    from onceward.web.serve import listen, url_of

    listening = listen(settings.health_host, settings.health_port)
    health = HealthSite(app, Auth(settings.keys, settings.jwt), metrics_auth=settings.metrics_auth)

    def started() -> None:
        health.started()
        announce(url_of(listening))

    async with AsyncExitStack() as stack:
        stack.callback(listening.close)
        await stack.enter_async_context(health.listen(listening))
        await app.work_until_signal(started, health.draining.set)
