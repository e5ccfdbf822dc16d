"""The console: static pages to monitor and operate a server.

Their scripts call the public API with the session of the browser.
"""

from importlib.resources import files

from onceward.web.pages import ISOLATED, Pages
from onceward.web.site import Site

_PAGES = Pages(files("onceward.web").joinpath("page"), ISOLATED)
_FRONT = "console.html"
_PORTAL = _PAGES.routes({"": "portal.html"}, "The page of an endpoint for its owner")

MOUNTED = {
    "/": Site(_PAGES.routes({"/": _FRONT}, "The console")),
    "/portal": Site(_PORTAL),
    "/console": Site(_PAGES.routes({"": _FRONT, "/{file}": "{file}"}, "The console")),
}
"""The paths of the console. An application may replace the front page."""
