"""The HTTP and WebSocket server."""

from typing import TYPE_CHECKING

from onceward.lazy import lazy

if TYPE_CHECKING:
    from onceward.strict_json import parse
    from onceward.web.auth import ApiKey, Auth, JwtKey
    from onceward.web.forms import Form
    from onceward.web.http import Request, Response, problem
    from onceward.web.pages import ISOLATED, Pages
    from onceward.web.routes import Route
    from onceward.web.serve import serve as run_server
    from onceward.web.server import Server, ServerKeywords, insist_dev, insist_local
    from onceward.web.sessions import insist_own_page
    from onceward.web.settings import Settings
    from onceward.web.site import Site

__all__ = [
    "ISOLATED",
    "ApiKey",
    "Auth",
    "Form",
    "JwtKey",
    "Pages",
    "Request",
    "Response",
    "Route",
    "Server",
    "ServerKeywords",
    "Settings",
    "Site",
    "insist_dev",
    "insist_local",
    "insist_own_page",
    "parse",
    "problem",
    "run_server",
]

# Imported on first use, so that a module of this package loads only its own dependencies.
__getattr__ = lazy(
    __name__,
    {
        "ApiKey": "onceward.web.auth",
        "Auth": "onceward.web.auth",
        "Form": "onceward.web.forms",
        "insist_dev": "onceward.web.server",
        "insist_local": "onceward.web.server",
        "insist_own_page": "onceward.web.sessions",
        "ISOLATED": "onceward.web.pages",
        "JwtKey": "onceward.web.auth",
        "Pages": "onceward.web.pages",
        "parse": "onceward.strict_json",
        "problem": "onceward.web.http",
        "Request": "onceward.web.http",
        "Response": "onceward.web.http",
        "Route": "onceward.web.routes",
        "run_server": "onceward.web.serve:serve",
        "Server": "onceward.web.server",
        "ServerKeywords": "onceward.web.server",
        "Settings": "onceward.web.settings",
        "Site": "onceward.web.site",
    },
)
