"""Tenure in a Django project: a backend for `django.tasks`, jobs on commit, management commands, links in the admin.

    INSTALLED_APPS = [..., "tenure.contrib.django"]
    TASKS = {"default": {"BACKEND": "tenure.contrib.django.backend.TenureBackend", "OPTIONS": {"ADDRESSES": ["10.0.0.5:8470"]}}}

docs/django.md has the options. Django 6 has `django.tasks`; for Django 5.2 the package django-tasks brings it.
"""
