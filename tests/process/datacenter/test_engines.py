"""One hard day of a datacenter on each engine: hundreds of workflows, while everything that can die does, with real processes and servers."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.patience import wait_until
from tests.process.datacenter.conftest import Datacenter
from tests.soak import sized

from tenure.errors import JobNotEndedError, NodeUnavailableError
from tenure.jobs import JobState, JobSubmission, Outcome, WorkflowSpec
from tools.servers import Nats, Postgres, Valkey

JOBS = 20
EACH = sized("workflows in each of 20 jobs while everything dies, on each engine", short=20, long=50)
ALL = JOBS * EACH
SERVERS: dict[str, Callable[[], Any]] = {
    "postgres": Postgres,
    # Every write synced: a Redis that loses a second of writes when it is killed is refused by the nodes, loudly.
    "valkey": lambda: Valkey({"appendonly": "yes", "appendfsync": "always"}),
    "nats": Nats,
}


def job(number: int, log: Path) -> JobSubmission:
    specs = (
        WorkflowSpec(name=f"s{n}", function="step", arguments={"n": number * EACH + n, "log": str(log), "seconds": 0})
        for n in range(EACH)
    )
    return JobSubmission(job_id=f"job-{number}", workflows=tuple(specs), timeout_seconds=600)


class Insistence:
    """Submits one and the same job, over and over, whatever happens."""

    def __init__(self, datacenter: Datacenter, submission: JobSubmission) -> None:
        self.outcomes: Counter[Outcome] = Counter()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._insist, args=(datacenter, submission), daemon=True)
        self._thread.start()

    def _insist(self, datacenter: Datacenter, submission: JobSubmission) -> None:
        with datacenter.new_client() as client:
            while not self._stop.wait(0.05):
                with suppress(NodeUnavailableError):  # its patience is over; ours is not
                    self.outcomes[client.submit_job(submission).outcome] += 1

    def end(self) -> None:
        self._stop.set()
        self._thread.join(180)
        assert not self._thread.is_alive()


@pytest.fixture
def on(own_server: Callable[[Any], Any], datacenter: Datacenter) -> Iterator[Callable[[str], Any]]:
    """The datacenter on a private server of this kind; gives the server."""

    def start(kind: str) -> Any:
        server = own_server(SERVERS[kind]())
        datacenter.url = server.url
        return server

    yield start
    datacenter.close()  # before its server goes


def ran(log: Path) -> int:
    return len(log.read_text().split()) if log.exists() else 0


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("kind", list(SERVERS))
def test_hundreds_of_workflows_survive_the_death_of_everything_once(
    kind: str, on: Callable[[str], Any], datacenter: Datacenter, tmp_path: Path
) -> None:
    server = on(kind)
    log = tmp_path / "log"
    datacenter.manager("m-1")
    first = datacenter.until_led()
    datacenter.manager("m-2")
    doomed = datacenter.worker("--slots", "2", "--lease", "5")
    client = datacenter.client
    insistence = Insistence(datacenter, job(0, log))
    for number in range(JOBS):
        client.submit_job(job(number, log))
    deadlines = {f"job-{number}": client.job(f"job-{number}").deadline for number in range(JOBS)}

    wait_until(lambda: ran(log) > 0.1 * ALL, datacenter.autopsy)
    datacenter.managers[first].kill()
    wait_until(lambda: ran(log) > 0.3 * ALL, datacenter.autopsy)
    missed = datacenter.misses_its_engine()
    server.kill()
    # Nobody has an engine: nothing may be lost, and nobody may give up.
    wait_until(lambda: datacenter.misses_its_engine() > missed, datacenter.autopsy)
    server.restart()
    frozen = datacenter.worker("--slots", "2", "--lease", "5")
    wait_until(lambda: ran(log) > 0.5 * ALL, datacenter.autopsy)
    doomed.kill()
    wait_until(lambda: ran(log) > 0.7 * ALL, datacenter.autopsy)
    second = datacenter.until_led()
    third = datacenter.manager("m-3")
    datacenter.worker("--slots", "2", "--lease", "5")
    stopped = (datacenter.managers[second], frozen)
    for node in stopped:  # the leader and a worker at once
        node.signal(signal.SIGSTOP)
    wait_until(lambda: "leads with epoch" in third.said(), datacenter.autopsy)  # when they go on, another leads
    for node in stopped:
        node.signal(signal.SIGCONT)

    for number in range(JOBS):
        try:
            view = client.wait(f"job-{number}", 180)
        except JobNotEndedError:
            pytest.fail(datacenter.autopsy())
        assert view.state is JobState.COMPLETED, client.why(view.job_id).text
        assert [one.result for one in view.workflows] == [2 * (number * EACH + n) for n in range(EACH)]
        recorded = Counter(link.kind for link in client.why(view.job_id).why.links)
        assert recorded["WorkflowCompleted"] == EACH
        assert view.deadline == deadlines[view.job_id]
    insistence.end()
    assert insistence.outcomes[Outcome.ACCEPTED] <= 1
    assert set(insistence.outcomes) <= {Outcome.ACCEPTED, Outcome.ALREADY}
    assert client.jobs().known == JOBS
    assert set(map(int, log.read_text().split())) == set(range(ALL))
    epochs = datacenter.epochs()
    assert epochs == sorted(epochs)
