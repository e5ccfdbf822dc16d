"""The page in the admin: jobs with their states, and retries of failed ones."""

from datetime import UTC, datetime
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse

from onceward import OncewardError
from onceward.integrations.django import jobs
from onceward.integrations.django.models import Job

STATES = ("queued", "running", "retrying", "scheduled", "failed", "in_doubt", "succeeded")
_PAGE = 50


@admin.register(Job)
class JobAdmin(admin.ModelAdmin):
    """Lists the jobs of the database. The permission `change` allows retries."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            return self._retry(request)
        asked = {name: request.GET.get(name, "") for name in ("queue", "state", "text", "after")}
        found: list[dict[str, Any]] = []
        following = ""
        try:
            page = _jobs(limit=_PAGE, **asked)
            found = [_shown(one) for one in page.jobs]
            following = page.next or ""
        except OncewardError as error:
            messages.error(request, error.message)
        context = {
            **self.admin_site.each_context(request),
            "title": "Jobs",
            "opts": self.model._meta,
            "jobs": found,
            "states": STATES,
            "asked": asked,
            "following": following,
            "may_retry": self.has_change_permission(request),
        }
        return TemplateResponse(request, "admin/onceward/jobs.html", context)

    def _retry(self, request: HttpRequest) -> HttpResponse:
        if not self.has_change_permission(request):
            raise PermissionDenied
        id_ = request.POST.get("retry", "")
        try:
            if jobs.site.has_database:
                jobs.app.queues.retry(id_)
            else:
                jobs.client.jobs.retry(id_)
            messages.success(request, f"Job {id_} is retried.")
        except OncewardError as error:
            messages.error(request, error.message)
        return redirect(request.get_full_path())

    def change_view(self, request: HttpRequest, *_: Any, **__: Any) -> HttpResponse:
        return redirect("admin:onceward_job_changelist")


def _jobs(*, limit: int, **asked: str) -> Any:
    given: dict[str, Any] = {name: value for name, value in asked.items() if value}
    if jobs.site.has_database:
        return jobs.app.queues.jobs(limit=limit, **given)
    return jobs.client.jobs.list(limit=limit, **given)


def _shown(job: Any) -> dict[str, Any]:
    return {
        "id": job.id,
        "queue": job.queue,
        "state": job.state,
        "key": job.key or "",
        "attempt": job.attempt,
        "created": datetime.fromtimestamp(job.created_ms / 1000, UTC),
        "reason": job.reason,
        "failed": job.state in ("failed", "in_doubt"),
    }
