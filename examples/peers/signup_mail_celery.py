"""A mail after a sign-up, with Django and Celery: sent after the commit, unless the process dies in between."""

from __future__ import annotations

import os

from celery import Celery
from django.contrib.auth.models import User
from django.core.mail import send_mail
from django.db import transaction

app = Celery("shop", broker=os.environ.get("BROKER", "redis://127.0.0.1:6379"))
app.conf.task_acks_late = True
app.conf.task_reject_on_worker_lost = True
app.conf.task_routes = {"shop.welcome": {"queue": "mail"}}


@app.task(name="shop.welcome", max_retries=2, autoretry_for=(OSError,), retry_backoff=True)
def welcome(user_id: int) -> str:
    user = User.objects.get(pk=user_id)
    send_mail("Welcome", f"Hello {user.username}!", "shop@example.org", [user.email])
    return user.email


def sign_up(name: str, email: str) -> None:
    with transaction.atomic():
        user = User.objects.create_user(name, email)
        transaction.on_commit(lambda: welcome.delay(user.pk))
