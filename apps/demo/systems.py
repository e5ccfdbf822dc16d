"""All systems as one application on one embedded database."""

from typing import Any

from apps.board import Board
from apps.credit import calls
from apps.credit.credit import Credit
from apps.credit.decision import decide
from apps.credit.intake import Intake
from apps.credit.settings import Settings as CreditSettings
from apps.credit.storm import ORGANISATION
from apps.demo.landing import Landing
from apps.demo.settings import BOTS, PULLS, Settings
from apps.demo.shop import open_shop
from apps.rps import Game, Phones, Web
from apps.tictactoe import Club
from apps.tictactoe.club import TABLES
from onceward import App, NotDone

_THROW_S = 600.0
_LEASE_S = 2.0
_DRAIN_S = 1.0
_PULLS_AT_ONCE = 64
_ATTEMPTS = 100


def make_app(settings: Settings) -> App:
    """Create the application of the server."""
    key = settings.server_key or None
    app = App(settings.database, name="demo", drain_s=_DRAIN_S, server_key=key)
    declare(app, settings)
    return app


def declare(app: App, settings: Settings) -> None:
    """Add all systems to an application, before it starts."""
    open_shop(app)
    game = Game(app, [Phones(), Web()], throw_s=_THROW_S)
    app.mount("/rps", game.site())
    club = Club(app, {**TABLES, BOTS: {"turn_s": 30, "grace_s": 20}})
    app.mount("/tictactoe", club.site())
    app.mount("/board", Board(app).site())
    _take_credit(app, settings)
    landing = Landing(settings.control)
    app.mount("/", landing.front())
    app.mount("/demo", landing.site())


def _take_credit(app: App, settings: Settings) -> None:
    """Add credit intake, with pulls by workers."""
    app.queue(
        PULLS,
        attempts_max=_ATTEMPTS,
        retry_first_s=0.2,
        retry_max_s=0.5,
        internal=True,
        remote_work=True,
    )
    told = CreditSettings(
        organisations=(ORGANISATION,),
        secret=settings.secret,
        bureau=f"{settings.outside}/bureau/pulls",
        bureau_keys=True,
        salesforce=f"{settings.outside}/salesforce/results",
        lease_s=_LEASE_S,
        concurrency=_PULLS_AT_ONCE,
        retry_first_s=0.2,
    )
    Intake(Credit(told, app, Pullers(app), decide))


class Pullers:
    """The external calls of credit intake: a pull is a job for a worker, one for each key."""

    deliver = staticmethod(calls.deliver)

    def __init__(self, app: App) -> None:
        self._app = app

    async def pull(
        self,
        url: str,
        reference: str,
        fields: dict[str, Any],
        *,
        key: str | None,
        timeout_s: float,
        authorization: str = "",
    ) -> Any:
        """Return the report from a worker. The same key is the same job. Raises `NotDone` if the
        pull failed."""
        asked = {"reference": reference, "fields": fields}
        receipt = await self._app.send(PULLS, asked, key=key)
        job = await self._app.wait(receipt.id)
        if job.state != "succeeded":
            raise NotDone(f"the pull is {job.state}: {job.reason}")
        return job.result
