"""The API, route by route."""

from onceward.web.api import (
    endpoints,
    inbox,
    jobs,
    locks,
    matches,
    queues,
    rooms,
    rooms_inside,
    system,
    tables,
    timers,
    timers_plain,
)

ROUTES = [
    *inbox.ROUTES,
    *jobs.ROUTES,
    *queues.ROUTES,
    *locks.ROUTES,
    *timers.ROUTES,
    *timers_plain.ROUTES,
    *endpoints.ROUTES,
    *rooms.ROUTES,
    *rooms_inside.ROUTES,
    *tables.ROUTES,
    *matches.ROUTES,
    *system.ROUTES,
]
