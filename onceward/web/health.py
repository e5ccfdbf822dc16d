"""The health and the metrics of a running application."""

from onceward import limits
from onceward.app import App
from onceward.observe.counts import Counts
from onceward.observe.process import disk_metrics, process_metrics
from onceward.web import metrics
from onceward.web.cached import Shared


class Health:
    """The health and the metrics of a running application. Concurrent requests share one
    computation."""

    def __init__(self, app: App, counts: Counts) -> None:
        self._app = app
        self._counts = counts
        clock = app.store.clock
        self._probed = Shared(app.probe, limits.PUBLIC_S, clock, "onceward-probe")
        self._metrics = Shared(self._compute, limits.PUBLIC_S, clock, "onceward-metrics")

    async def probe(self) -> None:
        """Check whether the node can work now; raises the reason otherwise. Public, so one commit
        serves all requests within `limits.PUBLIC_S`."""
        await self._probed.get()

    async def metrics(self) -> bytes:
        """Return all metrics as text, computed at most once in `limits.PUBLIC_S`."""
        return await self._metrics.get()

    async def _compute(self) -> bytes:
        app = self._app
        path = str(getattr(app.engine, "path", ""))
        gauges = {**process_metrics(), **disk_metrics(path), **app.hub.gauges()}
        now_ms = app.store.clock.now_ms()
        text = metrics.text(app.store.meters, self._counts, now_ms, gauges, app.alarms.gauges())
        return metrics.build_info() + text
