"""The model of the page in the admin: it has permissions, and no table."""

from django.db import models


class Job(models.Model):
    """A job, for the permissions to view and to retry."""

    class Meta:
        managed = False
        app_label = "onceward"
        default_permissions = ("view", "change")
        verbose_name = "job"
        verbose_name_plural = "jobs"
