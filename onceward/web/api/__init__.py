"""HTTP functions of the API, one module for each noun."""

from onceward.web import scripts
from onceward.web.api import (
    callers,
    endpoints,
    inbox,
    jobs,
    keys,
    locks,
    matches,
    overview,
    queues,
    rooms,
    session,
    system,
    tables,
    timers,
)

ROUTES = [
    *inbox.ROUTES,
    *jobs.ROUTES,
    *queues.ROUTES,
    *locks.ROUTES,
    *timers.ROUTES,
    *endpoints.ROUTES,
    *rooms.ROUTES,
    *tables.ROUTES,
    *matches.ROUTES,
    *overview.ROUTES,
    *session.ROUTES,
    *keys.ROUTES,
    *callers.ROUTES,
    *system.ROUTES,
    *scripts.ROUTES,
]
