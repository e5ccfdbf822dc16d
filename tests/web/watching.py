"""Watches a page for long, and what it takes meanwhile."""

from typing import Any

# What the samples of ten minutes take, and what a collector leaves for later.
GROWTH_BYTES_MAX = 3_000_000
GROWTH_NODES_MAX = 200


def growth(page: Any, updates: int, first: int = 10) -> dict[str, float]:
    """By how much a page grows while it is updated so many times, once it shows all there is, after
    the first so many. Raises `AssertionError` if that is much."""
    devtools = page.context.new_cdp_session(page)
    devtools.send("Performance.enable")
    watch(page, first)
    before = used(devtools)
    watch(page, updates)
    after = used(devtools)
    grown = {name: after[name] - before[name] for name in before}
    assert grown["JSHeapUsedSize"] < GROWTH_BYTES_MAX, (before, after)
    assert grown["Nodes"] < GROWTH_NODES_MAX, (before, after)
    return grown


def watch(page: Any, updates: int) -> None:
    """Wait for so many updates."""
    for _ in range(updates):
        with page.expect_response(lambda answer: "/v1/activity" in answer.url):
            pass


def used(devtools: Any) -> dict[str, float]:
    """What the page takes, when nothing is left over."""
    devtools.send("HeapProfiler.collectGarbage")
    found = devtools.send("Performance.getMetrics")["metrics"]
    names = ("JSHeapUsedSize", "Nodes", "JSEventListeners")
    return {one["name"]: one["value"] for one in found if one["name"] in names}
