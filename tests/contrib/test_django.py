"""A Django project as people have it, in processes of its own: Django's settings are of one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contrib.conftest import PATHS, ROOT

from tenure.local.embedded import Embedded

pytest.importorskip("django_tasks", reason="django-tasks is not installed here: make frameworks")
pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parent / "django_project"


@pytest.fixture(scope="module")
def environment(datacenter: Embedded, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(PROJECT), str(ROOT), str(ROOT / "src"), *PATHS]),
        "DJANGO_SETTINGS_MODULE": "settings",
        "SHOP_DATABASE": datacenter.engine_url.removeprefix("sqlite:///"),
        "SHOP_ENGINE": datacenter.engine_url,
        "SHOP_MAILS": str(tmp_path_factory.mktemp("mails")),
        "SHOP_MANAGERS": ",".join(datacenter.addresses),
    }


def run(environment: dict[str, str], *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def worker(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    log = tmp_path_factory.mktemp("worker") / "worker.log"
    with log.open("w") as said:
        command = [sys.executable, "manage.py", "tenure_worker", "--slots", "1"]
        running = subprocess.Popen(command, cwd=PROJECT, env=environment, stdout=said, stderr=said)
        yield
        running.terminate()
        assert running.wait(180) == 0, log.read_text()


@pytest.fixture(scope="module")
def told(environment: dict[str, str], worker: None) -> dict[str, Any]:
    return dict(json.loads(run(environment, "story.py").splitlines()[-1]))


def test_a_project_calls_tasks_and_gets_results_errors_and_links(
    told: dict[str, Any], datacenter: Embedded, environment: dict[str, str]
) -> None:
    """One test, because each process of pytest that had a part of it would start a datacenter and a worker."""
    results(told)
    assert datacenter.get(told["mail"]).wait(180) == "ada@example.org", "the example examples/real/signup_mail.py"
    (mail,) = Path(environment["SHOP_MAILS"]).iterdir()
    assert "Hello ada!" in mail.read_text()
    transactions(told, datacenter)
    assert told["link"] == f'<a href="http://{datacenter.addresses[0]}/#/job/a%20job%2F1">a job/1</a>'
    assert told["no link"] == "–"
    assert "remind" in run(environment, "manage.py", "tenure", "ps", told["reminder"])
    assert "shop.tasks.greet" in run(environment, "manage.py", "tenure", "workflows")
    schedules(datacenter, environment)


def results(told: dict[str, Any]) -> None:
    assert told["greeted"] == "Hello Ada!"
    assert told["reminded"] == {"name": "Ada", "attempt": 1, "id": told["reminder"]}
    assert told["counted"] == 3
    assert told["later"] == "READY"
    assert told["failed"]
    assert told["error"] == "shop.tasks.OutOfStock"
    assert told["trace"], "with the line that raised it"


def schedules(datacenter: Embedded, environment: dict[str, str]) -> None:
    """As entries of `CELERY_BEAT_SCHEDULE` become: with the arguments that the task has, and without any."""
    for name, given, result in (("new", (), "new"), ("all", ('kwargs={"full": true}',), "all")):
        add = ("schedule", "add", name, "shop.tasks.nightly", *given, "--cron", "0 3 * * *")
        run(environment, "manage.py", "tenure", *add)
        datacenter.trigger_schedule(name, job_id=f"nightly-{name}")
        assert datacenter.get(f"nightly-{name}").wait(180) == result


def transactions(told: dict[str, Any], datacenter: Embedded) -> None:
    """A job exists when the transaction committed, and only then."""
    for kind in ("on commit", "in the transaction"):
        kept, lost = told[kind]
        assert lost == "does not exist"
        assert datacenter.get(kept).wait(180) == "Hello kept"
    assert datacenter.get(told["workflow"]).wait(180) == "Hello Cy"
