"""Onceward in Django: handlers of each app, commands, and a page in the admin.

    INSTALLED_APPS = [..., "onceward.integrations.django"]
    ONCEWARD = {"DATABASE": "postgresql://…"}

A module `handlers` of an app is imported at the start:

    from onceward.integrations.django import jobs

    @jobs.handler("mails")
    def send(job):
        ...

`manage.py onceward_work` runs the handlers.
"""

try:
    import django  # noqa: F401
except ModuleNotFoundError as error:
    needs = "django: pip install 'onceward[django]'"
    raise ModuleNotFoundError(f"{__name__} needs {needs}", name=error.name) from error

from onceward.integrations.django.site import DjangoJobs

__all__ = ["DjangoJobs", "jobs"]

jobs = DjangoJobs()
"""Declares handlers, and has `app`, `client` and `send` for the settings `ONCEWARD`."""
