"""External services as a process: an example bureau and an example Salesforce.

python -m apps.credit.outside --pull-s 6 --failing 0.1 --keys
"""

import argparse
import asyncio
import socket
import sys
from collections.abc import Sequence

import uvicorn

from apps.credit.bureau import Bureau
from apps.credit.salesforce import Salesforce
from onceward import Clock, Ids
from onceward.web import Site


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="An example bureau, and an example Salesforce.")
    parser.add_argument(
        "--port", type=int, default=0, help="Port to listen on; 0: any free port [0]"
    )
    parser.add_argument(
        "--pull-s", type=float, default=5.0, help="Duration of a pull in seconds [5]"
    )
    parser.add_argument("--failing", type=float, default=0.0, help="Share of calls that fail [0]")
    parser.add_argument("--keys", action="store_true", help="Support idempotency keys")
    told = parser.parse_args(arguments)
    fraction = Ids(Clock().now_ms).fraction
    bureau = Bureau(fraction, pull_s=told.pull_s, keys=told.keys, failing=told.failing)
    salesforce = Salesforce(fraction, failing=told.failing)
    with socket.create_server(("127.0.0.1", told.port), backlog=1_024) as listening:
        sys.stdout.write(f"http://127.0.0.1:{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        config = uvicorn.Config(
            Site([*bureau.routes, *salesforce.routes]),
            log_config=None,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=1,
        )
        asyncio.run(uvicorn.Server(config).serve([listening]))


if __name__ == "__main__":
    main(sys.argv[1:])
