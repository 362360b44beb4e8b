"""The code of pages that needs a framework: docs/frameworks.md and docs/moving/celery.md with Django, docs/keep-your-queue.md with Celery and boto3."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.contrib.conftest import PATHS, ROOT
from tests.docs.page_blocks import block_titled

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

TASKS = """
import django

django.setup()
from shop import moved, tasks
from tenure.contrib.django.backend import TenureBackend
from django_tasks import task_backends

assert isinstance(task_backends["default"], TenureBackend)
print(tasks.send_mail.queue_name, moved.confirm.name)
"""


def test_the_settings_and_tasks_of_the_django_pages_are_taken_by_django(tmp_path: Path) -> None:
    pytest.importorskip("django_tasks", reason="django-tasks is not installed here: make frameworks")
    settings = block_titled("docs/frameworks.md", "settings.py").replace("[..., ", '["shop", ')
    (tmp_path / "settings.py").write_text(settings)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "tasks.py").write_text(block_titled("docs/frameworks.md", "shop/tasks.py"))
    (tmp_path / "shop" / "moved.py").write_text(block_titled("docs/moving/celery.md", "shop/tasks.py, after: Tenure"))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "src"), *PATHS]),
        "DJANGO_SETTINGS_MODULE": "settings",
    }
    command = [sys.executable, "-c", TASKS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert (done.stdout, done.returncode) == ("mail confirm\n", 0), done.stderr


def test_the_celery_application_of_the_page_has_its_task_and_the_task_runs() -> None:
    pytest.importorskip("celery", reason="Celery is not installed here: make frameworks")
    seen: list[str] = []

    def frames(path: str) -> Any:
        seen.append(path)
        return range(2)

    names: dict[str, Any] = {"__name__": "shop.celery", "frames": frames}
    exec(compile(block_titled("docs/keep-your-queue.md", "shop/celery.py"), "shop/celery.py", "exec"), names)
    assert "shop.celery.encode" in names["app"].tasks
    names["encode"]("a.mov")
    assert seen == ["a.mov"]


def test_the_consumer_of_the_page_takes_a_message_and_deletes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    boto3 = pytest.importorskip("boto3", reason="boto3 is not installed here: make frameworks")
    moto = pytest.importorskip("moto", reason="moto is not installed here: make frameworks")
    from tenure.contrib.sqs import SqsConsumer

    monkeypatch.setattr(SqsConsumer, "run", lambda self: self.take_one(wait_s=1))  # `run` ends with its process
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    seen: list[str] = []

    def frames(body: str) -> Any:
        seen.append(body)
        return range(2)

    with moto.mock_aws():
        sqs = boto3.client("sqs")
        queue = sqs.create_queue(QueueName="films")["QueueUrl"]
        sqs.send_message(QueueUrl=queue, MessageBody="a.mov")
        names: dict[str, Any] = {"__name__": "consumer", "frames": frames, "QUEUE_URL": queue}
        exec(compile(block_titled("docs/keep-your-queue.md", "consumer.py"), "consumer.py", "exec"), names)
        left = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
    assert seen == ["a.mov"]
    assert (left["ApproximateNumberOfMessages"], left["ApproximateNumberOfMessagesNotVisible"]) == ("0", "0")
