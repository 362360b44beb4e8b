"""Links from the admin's pages to the jobs of an object."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.utils.html import format_html

from tenure.contrib.django.jobs import job_url


class JobLinks:
    """A mixin for a ModelAdmin whose objects keep the id of a job: put `"tenure_job"` into list_display or readonly_fields.

    class FilmAdmin(JobLinks, admin.ModelAdmin):
        job_field = "encoding_job"
        list_display = ("title", "tenure_job")
    """

    job_field = "job_id"

    @admin.display(description="Job")
    def tenure_job(self, obj: Any) -> str:
        job_id = getattr(obj, self.job_field, "") or ""
        return str(format_html('<a href="{}">{}</a>', job_url(job_id), job_id)) if job_id else "–"
