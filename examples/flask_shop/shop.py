"""A shop in Flask: orders are accepted once, paid by a job, and their numbers are unique.

    flask --app examples.flask_shop.shop run          # the web server
    flask --app examples.flask_shop.shop onceward work    # the jobs

With PostgreSQL, any number of both can run:

    export ONCEWARD_DATABASE=postgresql://…
    gunicorn --preload --workers 4 "examples.flask_shop.shop:create_app()"
"""

import os
from dataclasses import dataclass
from typing import Any

from flask import Flask, current_app, request
from flask.typing import ResponseReturnValue

import onceward
from onceward.integrations.flask import Onceward

jobs = Onceward()


@dataclass
class Order:
    number: str
    item: str


@jobs.handler("orders", attempts_max=5)
def pay(job: onceward.SyncJob[Order]) -> str:
    """Charge the card in a step, then store the order with the end of the job."""
    receipt = job.step("charge", charge, job.body.item, job.id)
    job.tx.put(("orders", job.body.number), {"item": job.body.item, "receipt": receipt})
    return receipt


def charge(item: str, request_id: str) -> str:
    """A payment provider, which deduplicates by the id of the request."""
    current_app.logger.info("charging for %s", item)
    return f"receipt {request_id}"


def create_app(config: dict[str, Any] | None = None) -> Flask:
    web = Flask(__name__)
    web.config["ONCEWARD_DATABASE"] = os.environ.get("ONCEWARD_DATABASE", "sqlite:///shop.db")
    web.config.update(config or {})
    jobs.init_app(web)

    @web.put("/orders/<number>")
    def order(number: str) -> ResponseReturnValue:
        item = request.get_json()["item"]
        receipt = pay.enqueue(Order(number, item), key=number)
        return {"order": number, "job": receipt.id, "state": receipt.state}, 202

    @web.get("/orders/<number>")
    def show(number: str) -> ResponseReturnValue:
        found = jobs.app.run(lambda tx: tx.get(("orders", number)))
        return {"order": number, "paid": found is not None}

    @web.errorhandler(onceward.OncewardError)
    def problem(error: onceward.OncewardError) -> ResponseReturnValue:
        if error.kind.status >= 500:  # details of errors of the server are for the log only
            web.logger.error("%s", error)
            return {"code": error.code}, error.kind.status
        return {"code": error.code, "detail": error.message}, error.kind.status

    return web
