"""The API, route by route."""

from onceward.web import scripts
from onceward.web.api import (
    agenda,
    endpoints,
    inbox,
    jobs,
    jobs_found,
    keys,
    locks,
    matches,
    overview,
    queues,
    rooms,
    rooms_inside,
    session,
    system,
    tables,
    timers,
    timers_plain,
)

ROUTES = [
    *inbox.ROUTES,
    *jobs.ROUTES,
    *jobs_found.ROUTES,
    *queues.ROUTES,
    *locks.ROUTES,
    *timers.ROUTES,
    *timers_plain.ROUTES,
    *agenda.ROUTES,
    *endpoints.ROUTES,
    *rooms.ROUTES,
    *rooms_inside.ROUTES,
    *tables.ROUTES,
    *matches.ROUTES,
    *overview.ROUTES,
    *session.ROUTES,
    *keys.ROUTES,
    *system.ROUTES,
    *scripts.ROUTES,
]
