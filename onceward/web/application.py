"""Loading of the application in a setting or command line argument."""

import asyncio
from collections.abc import Iterable
from functools import partial
from importlib import import_module
from typing import Any

from onceward.app import App
from onceward.engine import LOADING_FOR
from onceward.errors import BadInput, OncewardError
from onceward.maintenance.key_source import FILE_VARIABLE, VARIABLE, given_keys
from onceward.server_key import parse_keys
from onceward.sync.bridge import Root
from onceward.web.settings import Setting, Settings, option_of


def application_of(settings: Settings, found: Iterable[Setting] = ()) -> App:
    """The application of the settings, with the settings for its handlers. `found` has their
    sources. Raises `bad_settings`, including for settings without effect."""
    if not settings.app:
        app = App(settings.database, name=settings.name)
    else:
        loading = LOADING_FOR.set(settings.database)
        try:
            app = load_app(settings.app)
        finally:
            LOADING_FOR.reset(loading)
        for name, own in (("database", app.url), ("name", app.name)):
            if getattr(settings, name) not in (getattr(Settings(), name), own):
                raise OncewardError(
                    f"the application {settings.app} sets its own {name}; "
                    f"leave out {option_of(name)} and {name} in other settings",
                    code="bad_settings",
                )
    given = {setting.name for setting in found if setting.source != "default"}
    try:
        app.limit_work(
            settings.queues,
            concurrency=settings.concurrency,
            drain_s=settings.drain_s if "drain_s" in given else None,
        )
    except BadInput as error:
        raise OncewardError(error.message, code="bad_settings") from error
    if not app.server_key:
        app.server_key = server_keys_of(settings)
    return app


def server_keys_of(settings: Settings) -> list[str]:
    """The server keys from the settings, as text. Raises `bad_settings`."""
    given = {VARIABLE: ",".join(settings.server_key), FILE_VARIABLE: settings.server_key_file}
    texts = given_keys((), given)
    parse_keys(texts)
    return texts


def load_app(path: str) -> App:
    """Import the application `module:name`. Synchronous calls of an `onceward.sync.App` use the
    event loop in which it is started. Raises `bad_settings`."""
    module, _, name = path.partition(":")
    try:
        found: Any = getattr(import_module(module), name or "app")
    except (ImportError, AttributeError, ValueError) as error:
        raise OncewardError(
            f"cannot load {path!r}: {error}. Use module:name, as in shop:app", code="bad_settings"
        ) from error
    app: Any = found._target if isinstance(found, Root) else found
    if not isinstance(app, App):
        raise OncewardError(
            f"{path!r} is not an onceward.App or onceward.sync.App; write MODULE:NAME of one",
            code="bad_settings",
        )
    if isinstance(found, Root):
        found.run_by(partial(_loop_of, app), partial(app.start, work=False), app.stop)
    return app


def _loop_of(app: App) -> asyncio.AbstractEventLoop:
    """The event loop of a running application. Raises `Unavailable` before its start."""
    assert app.node.task is not None
    return app.node.task.get_loop()
