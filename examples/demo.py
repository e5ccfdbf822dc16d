"""A shop with a few lamps, a board, and games to play, behind the server: what `make demo` runs.

    python examples/demo.py [PORT]

An order takes effect once for its key, and a text once for its id, however often it is sent, and
also if this process is killed in between: start it again, and all is still there.
"""

import sys
from pathlib import Path
from string import Template

import onceward
from onceward.apps.board import Board
from onceward.apps.rps import Game, Phones, Web
from onceward.apps.tictactoe import Club
from onceward.web.http import Request, Response
from onceward.web.routes import Route
from onceward.web.serve import serve
from onceward.web.settings import Settings
from onceward.web.site import Site

FOLDER = Path("build/demo")
LAMPS = 5
THROW_S = 600.0

FOLDER.mkdir(parents=True, exist_ok=True)
app = onceward.App(f"sqlite:///{FOLDER / 'shop.db'}")


@app.handler("orders", attempts=3)
async def sell(job: onceward.Job) -> str:
    left = await job.tx.get(("stock", "lamp"))
    left = LAMPS if left is None else left
    if not left:
        raise onceward.Fail("all lamps are sold")
    job.tx.put(("stock", "lamp"), left - 1)  # commits together with the end of the job
    return f"sold, {left - 1} left"


async def front(site: None, request: Request) -> Response:
    return Response.elsewhere("/rps/phones")


game = Game(app, [Phones(), Web()], throw_s=THROW_S)
app.mount("/rps", game.site())
app.mount("/tictactoe", Club(app).site())
app.mount("/board", Board(app).site())
app.mount("/", Site([Route("GET", "/", front, "Leads to the phones")]))

TRY = Template("""\
Open $url in a browser, and play rock, paper, scissors from two phones;
or against a phone, at $url/rps/play. Tic-tac-toe, with a line of those who wait, is at
$url/tictactoe: open it in two tabs, or three. And at $url/board
there are notes for everyone to move and write on.
The shop is open, too. Try this in another terminal:

  $command send orders '{"item": "lamp"}' --key order-1 --wait-s 5$server
  curl '$url/v1/inbox/orders?wait_ms=5000' -H 'Idempotency-Key: order-1' \\
    -H 'Content-Type: application/json' -d '{"body": {"item": "lamp"}}'
  $command queues$server
  $command timers set --id reminder --delay-s 3 --url $url/v1/inbox/orders$server \
    --body '{"body": {"item": "lamp"}, "key": "order-2"}'
  $command timers show reminder$server
  $command inspect $folder/shop.db

Send an order as often as you like: a lamp is sold once for its key. The timer calls the shop
itself, and orders a second one. All calls are listed at
$url/docs. Ctrl-C stops the server; what was sold stays sold.\
""")


def announce(url: str) -> None:
    command = Path(sys.executable).with_name("onceward")
    if command.is_relative_to(Path.cwd()):
        command = command.relative_to(Path.cwd())
    server = "" if url.endswith(":8080") else f" --server {url}"
    text = TRY.substitute(url=url, command=command, server=server, folder=FOLDER)
    print(text, flush=True)


def welcome(link: str) -> None:
    print(f"The console: {link}\n(it signs in once)\n")


def main() -> None:
    port = sys.argv[1] if len(sys.argv) > 1 else "8080"
    if not port.isdecimal():
        sys.exit(f"demo: a port is a number, not {port!r}")
    try:
        serve(Settings(app="demo:app", port=int(port)), announce, welcome)
    except onceward.OncewardError as error:
        hint = "; `make demo PORT=8081` takes another port" if "listen" in error.message else ""
        sys.exit(f"demo: {error.message}{hint}")
    except KeyboardInterrupt:
        pass  # before it was open
    print("The shop is closed.")


if __name__ == "__main__":
    main()
