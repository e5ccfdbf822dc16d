"""An application in one process, without optional dependencies.

`make package` runs it with the installed wheel.
"""

import asyncio
import sys

for name in sys.argv[1:]:  # modules to hide
    sys.modules[name] = None  # type: ignore[assignment]

import onceward  # noqa: E402
import onceward.testing  # noqa: E402
import onceward.tokens  # noqa: E402
import onceward.web  # noqa: E402

app = onceward.App("sqlite:///embedded.db")
app.cron("0 7 * * *", "greetings", {"name": "Cem"}, zone="Europe/Berlin")


@app.handler("greetings")
async def greet(job: onceward.Job) -> str:
    return f"Hello {job.body['name']}"


async def main() -> None:
    async with app:
        receipt = await app.send("greetings", {"name": "Ann"}, key="1")
        assert (await app.wait(receipt.id)).result == "Hello Ann"
        await app.timers.set("t", queue="greetings", body={"name": "Bea"}, delay_s=60)
        await app.timers.set("u", url="https://example.com/", delay_s=60)
        async with app.locks.hold("printer"):
            pass


asyncio.run(main())
