"""The configuration of the Django app."""

from importlib.util import find_spec
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import autodiscover_modules

from onceward.integrations.django import jobs


class OncewardConfig(AppConfig):
    """Imports the modules `handlers` of all apps, and checks the settings."""

    name = "onceward.integrations.django"
    label = "onceward"
    verbose_name = "Onceward"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        autodiscover_modules("handlers")
        if find_spec("django.tasks") is not None and settings.TASKS:
            from onceward.integrations.django.tasks import declare_tasks

            declare_tasks(jobs)
        checks.register(_check_settings)
        setting_changed.connect(_setting_changed)


def _check_settings(**_: Any) -> list[checks.CheckMessage]:
    try:
        jobs.admit()
    except ImproperlyConfigured as error:
        return [checks.Error(str(error), id="onceward.E001")]
    return []


def _setting_changed(*, setting: str, **_: Any) -> None:
    if setting == "ONCEWARD":
        jobs.reset()
