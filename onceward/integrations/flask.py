"""Onceward in Flask: handlers, jobs and a command for workers.

    onceward = Onceward()

    @onceward.handler("mails")
    def send(job):
        ...

    def create_app():
        web = Flask(__name__)
        web.config["ONCEWARD_DATABASE"] = "postgresql://…"
        onceward.init_app(web)
        return web

`flask onceward work` runs the handlers.
"""

import functools
from collections.abc import Callable
from typing import Any

try:
    import click
    from flask import Flask, current_app, has_app_context
    from flask.cli import AppGroup
except ModuleNotFoundError as error:
    needs = "flask: pip install 'onceward[flask]'"
    raise ModuleNotFoundError(f"{__name__} needs {needs}", name=error.name) from error

from onceward import BadInput, OncewardError
from onceward.integrations.site import Jobs, Site
from onceward.sync import is_async

__all__ = ["Onceward"]

_NAME = "onceward"


class Onceward(Jobs):
    """The extension. It has the declarations of `onceward.sync.App`, and `app`, `client` and `send`
    for the current Flask application.

    Configuration of Flask: `ONCEWARD_DATABASE`, or `ONCEWARD_SERVER` with `ONCEWARD_KEY`; with
    `ONCEWARD_WORK`, the handlers run in the processes of the web server.
    """

    def __init__(self, web: Flask | None = None) -> None:
        super().__init__()
        if web is not None:
            self.init_app(web)

    def init_app(self, web: Flask) -> None:
        """Configure the extension for a Flask application. Declare handlers before. Raises
        `BadInput`."""
        if _NAME in web.extensions:
            raise BadInput(
                f"the Flask application {web.name!r} already has the extension Onceward; call "
                "`init_app` once"
            )
        site = Site(
            database=web.config.get("ONCEWARD_DATABASE", ""),
            server=web.config.get("ONCEWARD_SERVER", ""),
            key=web.config.get("ONCEWARD_KEY"),
            work=web.config.get("ONCEWARD_WORK", False),
            prefix="ONCEWARD_",
        )
        web.extensions[_NAME] = self.declare(site, lambda fn: _in_context(web, fn))
        web.cli.add_command(_commands())

    @property
    def site(self) -> Site:
        if not has_app_context():
            raise BadInput(
                "there is no current Flask application: use `with web.app_context():` outside of "
                "requests"
            )
        found = current_app.extensions.get(_NAME)
        if not isinstance(found, Site):
            raise BadInput(
                f"the Flask application {current_app.name!r} has no extension Onceward: call "
                "`init_app` in its factory"
            )
        return found


def _in_context(web: Flask, fn: Callable[..., Any]) -> Callable[..., Any]:
    """A handler with the context of the Flask application."""

    @functools.wraps(fn)
    async def asynchronous(job: Any) -> Any:
        with web.app_context():
            return await fn(job)

    @functools.wraps(fn)
    def plain(job: Any) -> Any:
        with web.app_context():
            return fn(job)

    return asynchronous if is_async(fn) else plain


def _commands() -> AppGroup:
    group = AppGroup(_NAME, help="Jobs of Onceward.")

    @group.command("work")
    def work() -> None:
        """Run the handlers until SIGTERM or Ctrl-C."""
        site: Site = current_app.extensions[_NAME]
        if not site.has_database:
            raise click.ClickException("handlers need ONCEWARD_DATABASE; a server runs its own")
        try:
            site.declared.work(lambda: click.echo("working; Ctrl-C stops it"))
        except OncewardError as error:
            click.echo(f"Error: {error}", err=True)
            raise click.exceptions.Exit(error.kind.exit) from error

    return group
