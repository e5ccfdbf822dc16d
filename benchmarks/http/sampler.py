"""Runs Onceward's server and samples its stack a thousand times per second of CPU time.

The overhead of sampling is small.

    python -m benchmarks.http.sampler FILE DATABASE

The counts go to the file as JSON when the server stops.
"""

import json
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

from onceward.web.serve import serve
from onceward.web.settings import load

INTERVAL_S = 0.001

# The first row that matches the file, and the function if given, of the innermost frame.
LAYERS: tuple[tuple[str, str, str], ...] = (
    ("web/protocol.py", "", "HTTP"),
    ("uvicorn/", "", "HTTP"),
    ("web/routes.py", "", "routing, credentials"),
    ("web/auth.py", "", "routing, credentials"),
    ("strict_json.py", "", "JSON in"),
    ("web/http.py", "of", "JSON out"),
    ("web/http.py", "", "request and response"),
    ("web/", "", "request and response"),
    ("meters.py", "", "meters"),
    ("onceward/store/transaction.py", "", "transaction"),
    ("onceward/store/store.py", "", "transaction"),
    ("onceward/store/cache.py", "", "transaction"),
    ("sqlite/writer.py", "", "group commit"),
    ("sqlite/journal.py", "write", "journal write and sync"),
    ("sqlite/journal.py", "", "journal encoding"),
    ("sqlite/disk.py", "", "journal write and sync"),
    ("onceward/engine/", "", "engine: check and apply"),
    ("onceward/parts/", "", "rules of inbox and jobs"),
    ("onceward/keys.py", "", "rules of inbox and jobs"),
    ("onceward/ids.py", "", "rules of inbox and jobs"),
    ("onceward/app.py", "", "rules of inbox and jobs"),
    ("onceward/service/", "", "rules of inbox and jobs"),
    ("onceward/clock.py", "", "clock"),
)
LOOP = "event loop and sockets"


class Sampler:
    """Counts the location of the process each time its timer fires."""

    def __init__(self) -> None:
        self.layers: Counter[str] = Counter()
        self.lines: Counter[str] = Counter()

    def start(self) -> None:
        signal.signal(signal.SIGPROF, self._look)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _look(self, number: int, frame: FrameType | None) -> None:
        if frame is None:
            return
        code = frame.f_code
        self.layers[layer_of(frame)] += 1
        where = "/".join(code.co_filename.split("/")[-2:])
        self.lines[f"{where}:{frame.f_lineno} {code.co_name}"] += 1


def layer_of(frame: FrameType) -> str:
    # Time of the loop between callbacks is attributed to the start of the next one.
    caller = frame.f_back
    if frame.f_lasti <= 4 and (caller is None or "asyncio/" in caller.f_code.co_filename):
        return LOOP
    file, function = frame.f_code.co_filename, frame.f_code.co_name
    for part, name, layer in LAYERS:
        if part in file and name in ("", function):
            return layer
    return LOOP if "asyncio/" in file else "other"


def main(file: str, database: str) -> None:
    settings, _ = load({"database": database, "port": 0})
    sampler = Sampler()

    def announce(url: str) -> None:
        print(url, flush=True)
        sampler.start()

    serve(settings, announce)
    sampler.stop()
    found = {"layers": dict(sampler.layers), "lines": dict(sampler.lines.most_common(100))}
    Path(file).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
