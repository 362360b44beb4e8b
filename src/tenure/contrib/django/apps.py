"""The application's entry in INSTALLED_APPS."""

from __future__ import annotations

from django.apps import AppConfig


class TenureConfig(AppConfig):
    name = "tenure.contrib.django"
    label = "tenure"
    verbose_name = "Tenure"
