"""A datacenter of the first release is stopped in the middle of its work, and the present code goes on from what it left in the engine.

`tests/formats` does the same with recorded fixtures on every engine. Here the old code itself runs: its manager, its worker, its journal,
its schema, and its messages in flight.
"""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.patience import wait_until
from tests.process.datacenter.conftest import ENGINES

from tenure.client.client import Client

FIRST = "ab1a98b"
ROOT = Path(__file__).parents[2]
WITHIN_S = 180.0
HANDOVER = ("--drain", "handover", "--grace", "30")
APP = """
import os, time
from pathlib import Path
from tenure import workflow

GATE = Path(os.environ["GATE"])

@workflow(stall=120)
def count(ctx, to: int) -> list[int]:
    begun = ctx.resume or 0
    for number in ctx.track(range(begun, to)):
        if number == 3:
            ctx.checkpoint(3)
            (GATE / "saved").touch()
            while not (GATE / "open").exists():
                time.sleep(0.05)
                ctx.beat()
    return [begun, to]
"""


@pytest.fixture(scope="module")
def first_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", FIRST, "src"], capture_output=True, check=False)
    if packed.returncode:
        pytest.skip(f"the history has no {FIRST} here: {packed.stderr.decode().strip()[:200]}")
    folder = tmp_path_factory.mktemp("first")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


class Release:
    """The processes of one release, in one folder, on one engine. The first one is spoken to by its own command line."""

    def __init__(
        self, source: Path, folder: Path, name: str, url: str, *options: str, workers: Path | None = None
    ) -> None:
        """`options` are more of the manager's. `workers` is the release of its worker, where that is another one."""
        self.folder, self.name = folder, name
        self.environment = {**os.environ, "PYTHONPATH": str(source), "GATE": str(folder)}
        self.environment |= {"TENURE_ENGINE": url}
        self.running = [
            self.started(source, "manager", "--port", "0", "--term", "5", *options),
            self.started(workers or source, "worker", "app.py", "--managed", "--slots", "1", *HANDOVER),
        ]

    def started(self, source: Path, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{self.name}-{words[0]}.log").open("wb") as log:
            command = [sys.executable, "-m", "tenure", *words]
            environment = {**self.environment, "PYTHONPATH": str(source)}
            return subprocess.Popen(command, cwd=self.folder, env=environment, stdout=log, stderr=log)

    def ask(self, *words: str) -> str:
        command = [sys.executable, "-m", "tenure", *words, "--patience", str(WITHIN_S)]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}\n{self.logs()}"
        return "".join(done.stdout.split())

    def address(self) -> str:
        """Returns where its manager listens, once it does."""
        log = self.folder / f"{self.name}-manager.log"
        found: re.Match[str] = wait_until(lambda: re.search(r"listens on ([^\s\"]+)", log.read_text()), self.logs)
        return found[1]

    def stop(self) -> None:
        for process in reversed(self.running):  # the worker first: it hands its work over
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(WITHIN_S)
            finally:
                process.kill()

    def logs(self) -> str:
        return "\n".join(f"--- {path.name}\n{path.read_text()[-3000:]}" for path in self.folder.glob("*.log"))


@pytest.mark.parametrize("kind", list(ENGINES))
def test_work_of_the_first_release_goes_on_in_this_one(
    kind: str, first_release: Path, own_server: Callable[[Any], Any], tmp_path: Path
) -> None:
    """Its mailboxes of the old form are drained, whatever engine holds them."""
    server = ENGINES[kind]
    # The first release gave up at its start when a server did not answer for the time in its URL: 5 s by default, which a busy machine exceeds.
    url = f"sqlite:///{tmp_path}/tenure.db" if server is None else f"{own_server(server()).url}?timeout={WITHIN_S:g}"
    (tmp_path / "app.py").write_text(APP)
    old = Release(first_release, tmp_path, "old", url)
    try:
        old.ask("submit", "count", "to=2", "--id", "done", "--wait")
        old.ask("submit", "count", "to=5", "--id", "begun")
        wait_until((tmp_path / "saved").exists, old.logs)
        old.ask("submit", "count", "to=1", "--id", "queued")  # behind it: there is one slot
    finally:
        old.stop()
    (tmp_path / "open").touch()
    new = Release(ROOT / "src", tmp_path, "new", url)
    try:
        with Client([new.address()], patience_s=WITHIN_S) as client:
            assert client.get("begun").wait(WITHIN_S) == [3, 5], "it goes on from its checkpoint"
            assert client.get("queued").wait(WITHIN_S) == [0, 1], "a message in flight is delivered"
            assert client.get("done").wait(WITHIN_S) == [0, 2], "a result of the first release can be read"
            assert client.submit("count", to=1, job_id="after").wait(WITHIN_S) == [0, 1]
    finally:
        new.stop()


def test_managers_can_be_taken_back_until_the_format_is_raised(first_release: Path, tmp_path: Path) -> None:
    """Managers first: as long as workers are those of before, and nobody has raised the format, the first release reads all that was written."""
    url, source = f"sqlite:///{tmp_path}/tenure.db", ROOT / "src"
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "open").touch()

    def played(release: Release, job: str) -> None:
        try:
            release.ask("submit", "count", "to=5", "--id", job, "--wait")
        finally:
            release.stop()

    played(Release(first_release, tmp_path, "old", url), "first")
    played(Release(source, tmp_path, "new", url, workers=first_release), "second")
    played(Release(first_release, tmp_path, "back", url), "third")
    raised = Release(source, tmp_path, "raised", url, "--raise-format")
    try:
        with Client([raised.address()], patience_s=WITHIN_S) as client:
            for job in ("first", "second", "third"):
                assert client.get(job).wait(WITHIN_S) == [0, 5]
            assert client.submit("count", to=5, job_id="fourth").wait(WITHIN_S) == [0, 5]
    finally:
        raised.stop()
    late = Release(first_release, tmp_path, "late", url)
    try:
        wait_until(lambda: "FormatRaised" in late.logs(), late.logs)
    finally:
        late.stop()
    assert "leads with epoch" not in (tmp_path / "late-manager.log").read_text()
