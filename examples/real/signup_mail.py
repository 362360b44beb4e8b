"""A mail after a sign-up, with Django: the mail is sent if and only if the user exists, and the page does not wait for it.

It is a task of Django's own kind; nothing in here knows Tenure. settings.py names the backend (docs/frameworks.md).
"""

from __future__ import annotations

from django.contrib.auth.models import User
from django.core.mail import send_mail
from django.db import transaction
from django_tasks import task


@task(queue_name="mail")
def welcome(user_id: int) -> str:
    user = User.objects.get(pk=user_id)
    send_mail("Welcome", f"Hello {user.username}!", "shop@example.org", [user.email])
    return user.email


def sign_up(name: str, email: str) -> str:
    with transaction.atomic():
        user = User.objects.create_user(name, email)
        return welcome.enqueue(user.pk).id
