"""The API, route by route."""

from onceward.web.api import inbox, jobs, locks, queues, system

ROUTES = [*inbox.ROUTES, *jobs.ROUTES, *queues.ROUTES, *locks.ROUTES, *system.ROUTES]
