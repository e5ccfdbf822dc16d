"""A program with the client that openapi-python-client makes: calls the server at the given URL."""

import importlib
import pkgutil
import sys

import onceward_api
from onceward_api import Client
from onceward_api.api.jobs import jobs_get, jobs_list
from onceward_api.api.messages import messages_send
from onceward_api.api.queues import queues_configure, queues_get, queues_list
from onceward_api.models import Job, Message, Problem, QueueSettings, Receipt


def main() -> None:
    for module in pkgutil.walk_packages(onceward_api.__path__, "onceward_api."):
        importlib.import_module(module.name)
    with Client(base_url=sys.argv[1]) as client:
        first = messages_send.sync_detailed(
            "orders", client=client, body=Message(body={"item": "lamp"}, key="order-1042")
        )
        assert first.status_code == 202, first
        again = messages_send.sync(
            "orders",
            client=client,
            body=Message(body={"item": "lamp"}),
            idempotency_key="order-1042",
        )
        assert isinstance(first.parsed, Receipt), first
        assert isinstance(again, Receipt), again
        assert (again.id, again.duplicate) == (first.parsed.id, True)

        job = jobs_get.sync(again.id, client=client)
        assert isinstance(job, Job), job
        assert (job.queue, job.state, job.body) == ("orders", "queued", {"item": "lamp"})
        page = jobs_list.sync(client=client, queue="orders")
        assert [one.id for one in page.jobs] == [again.id]

        # A change of one setting leaves the others.
        queues_configure.sync("orders", client=client, body=QueueSettings(limit=3))
        queues_configure.sync("orders", client=client, body=QueueSettings(fair=True))
        queue = queues_get.sync("orders", client=client)
        assert (queue.settings.limit, queue.settings.fair) == (3, True), queue
        assert [one.name for one in queues_list.sync(client=client).queues] == ["orders"]

        missing = jobs_get.sync_detailed("nothing", client=client)
        assert missing.status_code == 404
        assert isinstance(missing.parsed, Problem), missing
        assert (missing.parsed.code, missing.parsed.retry) == ("no_such_job", False)
    print("done")


main()
