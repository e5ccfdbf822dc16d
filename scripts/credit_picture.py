"""Draws the picture of the storm test: its final output with and without keys at the bureau.

python scripts/credit_picture.py docs/credit-storm.svg
"""

import asyncio
import io
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from apps.credit.storm import Course, Plan, Storm
from apps.credit.storm_display import Sight, print_course
from onceward.testing.postgres import PostgresServer

WIDTH = 100
LEASE_S = 2.0


async def blow(plan: Plan, database: str, sight: Sight) -> Course:
    with TemporaryDirectory() as folder:
        return await Storm(plan, database, Path(folder), sight.show).run()


def main() -> None:
    [target] = sys.argv[1:]
    out = Console(record=True, width=WIDTH, file=io.StringIO(), highlight=False)
    with PostgresServer({"fsync": "off"}) as server:
        for keys in (True, False):
            plan = Plan(keys=keys, lease_s=LEASE_S)
            with Sight(plan, Console(stderr=True)) as sight:
                course = asyncio.run(blow(plan, f"{server.url}?schema=keys_{int(keys)}", sight))
            options = f"--lease-s {LEASE_S:g}{'' if keys else ' --no-keys'}"
            out.print(f"[bold]$[/] python -m apps.credit storm {options}")
            out.print(sight.progress.get_renderable())
            print_course(course, out)
    svg = out.export_svg(title="python -m apps.credit storm")
    # Without web fonts: the reader's fonts suffice.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    Path(target).write_text(svg.rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
