"""Searches of the documentation, and the page that must come first."""

SEARCHES = {
    "background job": "messages/",
    "retry policy": "messages/",
    "distributed lock": "locks/",
    "cron": "timers/",
    "presence": "rooms/",
    "troubleshooting": "troubleshooting/",
    "exactly once": "concepts/",
    "idempotency": "messages/",
    "flask": "guides/flask/",
    "django": "guides/django/",
    "fastapi": "guides/fastapi/",
    "twilio": "guides/twilio/",
}
