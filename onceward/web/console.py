"""The console: pages to watch and look after a server, as static files. Their scripts call the
API, as any other caller does; who they are is a matter of sessions."""

from importlib.resources import files

from onceward.web.pages import ISOLATED, Pages
from onceward.web.site import Site

_PAGES = Pages(files("onceward.web").joinpath("page"), ISOLATED)
_FRONT = "console.html"

MOUNTED = {
    "/": Site(_PAGES.routes({"/": _FRONT}, "The console")),
    "/console": Site(_PAGES.routes({"": _FRONT, "/{file}": "{file}"}, "The console")),
}
"""Where it is. An application may have a front page of its own in place of the first."""
