"""The pytest plugin: fixtures for an application on virtual time.

It is loaded in every run of pytest in an environment with Onceward, so it imports nothing else
before a test uses a fixture.
"""

import argparse
import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from onceward.app import App
    from onceward.testing.app import SyncTestApp, TestApp

_NO_APP = (
    "no application: set `onceward_app = shop:app` in the configuration of pytest, pass "
    "`--onceward-app shop:app`, or define a fixture `onceward_application` that returns your App"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("onceward")
    help_ = "The application under test as module:name, for the fixtures of Onceward"
    group.addoption("--onceward-app", metavar="MODULE:NAME", help=help_)
    parser.addini("onceward_app", help_)
    help_ = "Simulate the messages of tests marked `onceward_simulate` with this number of seeds"
    group.addoption("--onceward-seeds", metavar="N", type=_seeds, default=0, help=help_)


def _seeds(given: str) -> int:
    if not given.isdecimal():
        raise argparse.ArgumentTypeError(f"invalid number of seeds {given!r}; use 0 or more")
    return int(given)


def pytest_configure(config: pytest.Config) -> None:
    mark = "onceward_simulate: with --onceward-seeds, simulate the messages that the test has sent"
    config.addinivalue_line("markers", mark)


@pytest.fixture
def onceward_application(request: pytest.FixtureRequest) -> "App | Callable[[], App] | str":
    """The application under test. Override it to return your `App`, or a function that does."""
    named = request.config.getoption("onceward_app") or request.config.getini("onceward_app")
    if not named:
        raise pytest.UsageError(_NO_APP)
    return str(named)


@pytest.fixture
def onceward_app(onceward_application: Any, request: pytest.FixtureRequest) -> "TestApp":
    """Your application on a virtual clock and an empty database in memory, for `async def` tests.

    It runs during the test: `drain()` runs its jobs, `advance(seconds)` lets time pass, and
    `enqueued()` has what was sent. Async fixtures that use it first await its `start()`.
    """
    from onceward.testing.app import TestApp, load

    if not _is_async(request):
        raise pytest.UsageError("onceward_app is for async tests: use onceward_sync_app here")
    return TestApp(load(onceward_application))


@pytest.fixture
def onceward_sync_app(
    onceward_application: Any, request: pytest.FixtureRequest
) -> "Iterator[SyncTestApp]":
    """Your application as in `onceward_app`, for plain `def` tests."""
    from onceward.testing.app import SyncTestApp, load

    if _is_async(request):
        raise pytest.UsageError("onceward_sync_app is for plain tests: use onceward_app here")
    test = SyncTestApp(load(onceward_application, plain=True))
    try:
        yield test.start()
    finally:
        test.stop()


def _is_async(request: pytest.FixtureRequest) -> bool:
    """Whether the test of a fixture is an `async def` test."""
    return inspect.iscoroutinefunction(getattr(request.function, "__wrapped__", request.function))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Give tests with `onceward_app` an event loop with virtual time."""
    if "onceward_app" not in getattr(item, "fixturenames", ()):
        return (yield)
    from onceward.testing.clock import VirtualLoop

    events: Any = asyncio.events
    before = events.new_event_loop
    events.new_event_loop = VirtualLoop
    try:
        return (yield)
    finally:
        events.new_event_loop = before


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Run the application in the event loop of the test, which any plugin may make. Then
    simulate the messages of the test if it is marked."""
    given = getattr(item, "funcargs", {})
    app = given.get("onceward_app")
    function = getattr(item, "obj", None)
    if app is not None and inspect.iscoroutinefunction(function):
        item.obj = _within(app, function)  # type: ignore[attr-defined]
    result = yield
    test = app or given.get("onceward_sync_app")
    if item.get_closest_marker("onceward_simulate") and item.config.getoption("onceward_seeds"):
        if test is None or not test.sent:
            pytest.fail("nothing to simulate: the test has sent no message with `send`")
        from onceward.testing.proof import Message, Proof, prove

        messages = [Message(*one) for one in test.sent]
        prove(Proof(test.app, messages=messages), range(item.config.getoption("onceward_seeds")))
    return result


def _within(app: "TestApp", function: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def test(*args: Any, **options: Any) -> Any:
        async with app:
            return await function(*args, **options)

    return test
