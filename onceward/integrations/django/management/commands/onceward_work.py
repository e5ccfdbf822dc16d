"""The command `manage.py onceward_work`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from onceward import OncewardError
from onceward.integrations.django import jobs


class Command(BaseCommand):
    """Runs the handlers of the project."""

    help = "Run the handlers of all apps until SIGTERM or Ctrl-C."

    def handle(self, *_: Any, **__: Any) -> None:
        site = jobs.site
        if not site.has_database:
            raise CommandError("handlers need ONCEWARD['DATABASE']; a server runs its own")
        try:
            site.declared.work(lambda: self.stdout.write("working; Ctrl-C stops it"))
        except OncewardError as error:
            raise CommandError(str(error), returncode=error.kind.exit) from error
