"""Many sleeping jobs, a real manager and a worker with two slots: they cost next to nothing, and wake in time.

The sleepers are written into the journal as a leader writes them: to submit 100,000 and let two slots run each up to its sleep would measure something
else. `TENURE_SOAK=1` has the figures of issue 22.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.journal.journals import append
from tests.patience import PATIENCE_S, wait_until
from tests.process.datacenter.conftest import Datacenter, Node
from tests.soak import sized

from tenure.attempt_data import WaitsFor
from tenure.client.client import Client
from tenure.engines import Engine
from tenure.jobs.attempts import Dispatched
from tenure.jobs.deadlines import LeaderElected
from tenure.jobs.decisions import Event, encode_event
from tenure.jobs.formats import FormatRaised
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.submission import JobSubmitted
from tenure.jobs.topics import decode_event
from tenure.jobs.waits import Suspended, Woken

SLEEPERS = sized("sleeping jobs on one manager", short=3_000, long=100_000)
DUE = sized("sleepers that are due together", short=100, long=1_000)
DUE_IN_S = sized("seconds until they are due", short=12, long=60)
IDLE_S = sized("seconds over which an idle manager is measured", short=4, long=30)
MOST_IDLE = 0.02
MOST_JOB_BYTES = sized("bytes of resident memory for each sleeper", short=7_500, long=2_000)
"""Issue 22 asks for 2 KB: 100,000 take 1.4 KB each since sleepers are packed (0581). With few of them none is packed, and what a start leaves behind counts."""
MOST_LATE_S = sized("seconds that the last of those that are due together may be late", short=90.0, long=1.0)
"""Issue 22 asks for 1 s: 1,000 beside 100,000 others took 1.8 s with a load of 3 and 2.0 s with 17, while the cleaning of ended jobs held them up. It does not
any more, and that was not measured on a calm machine yet. Beside other tests a wake-up may have to wait for a core."""
WINDOWS = 10
"""A start has ended within so many windows, on a busy machine too: the first one in which both nodes idle counts."""
MODULE = """
from tenure import workflow

@workflow
def sleeps(ctx) -> None:
    ctx.sleep(days=1)

@workflow
def wakes(ctx, at: float) -> str:
    ctx.wait_until(at)
    return "awake"
"""


class Cost(NamedTuple):
    memory: int
    cpu_s: float


def cost(node: Node) -> Cost:
    """Returns the resident bytes of a process, and the CPU seconds that it has used."""
    place = Path(f"/proc/{node.process.pid}")
    fields = (place / "stat").read_text().rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    return Cost(
        int((place / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        (int(fields[11]) + int(fields[12])) / ticks,
    )


def sleeper(job_id: str, at: float, until: float) -> list[Event]:
    """Returns the events of a job that sleeps until then."""
    spec = WorkflowSpec(name="sleeps")
    waits = WaitsFor(step="sleep sleep #1", after_s=until - at)
    return [
        JobSubmitted(at=at, job_id=job_id, submission=JobSubmission(job_id=job_id, workflows=(spec,)), digest="d"),
        Dispatched(at=at, job_id=job_id, workflow="sleeps", attempt=1),
        Suspended(at=at, job_id=job_id, workflow="sleeps", attempt=1, waits=waits, worker="w", until=until),
    ]


def write_sleepers(url: str, count: int) -> None:
    """Writes a journal with so many sleepers."""
    with Engine.open(url) as engine:
        journal, now = engine.journal("jobs"), engine.now()
        begin: list[Event] = [LeaderElected(at=now, epoch=1, leader="m-0"), FormatRaised(at=now, by="m-0", format=2)]
        append(journal, 0, 1, tuple(map(encode_event, begin)))
        for seq, first in enumerate(range(0, count, 200), 1):
            events: list[Event] = []
            for number in range(first, min(count, first + 200)):
                events += sleeper(f"sleeper-{number:016x}", now, now + 86_400 + number)
            append(journal, seq, 1, tuple(map(encode_event, events)))


def woken_at(url: str) -> list[float]:
    """Returns the times of all wake-ups in the journal, by the engine's time."""
    with Engine.open(url) as engine:
        journal = engine.journal("jobs")
        snapshot = journal.latest_snapshot()
        after, found = snapshot.seq if snapshot else 0, list[float]()
        while entries := journal.read(after):
            found += [one.at for entry in entries for one in map(decode_event, entry.events) if isinstance(one, Woken)]
            after = entries[-1].seq
    return found


def measure_idle(manager: Node, worker: Node, base: Cost) -> tuple[list[float], float]:
    """Returns the parts of a core that both use while everything sleeps, and the bytes for each sleeper."""
    for _ in range(WINDOWS):  # what follows a start is no idling
        begun, before = time.monotonic(), (cost(manager), cost(worker))
        time.sleep(IDLE_S)
        after, lasted = (cost(manager), cost(worker)), time.monotonic() - begun
        idle = [(late.cpu_s - early.cpu_s) / lasted for early, late in zip(before, after, strict=True)]
        if max(idle) < MOST_IDLE:
            break
    each = (after[0].memory - base.memory) / SLEEPERS
    load = os.getloadavg()[0]
    print(f"idle: manager {idle[0]:.2%}, worker {idle[1]:.2%} of a core; {each:,.0f} bytes each; load {load:.1f}")
    return idle, each


def wake_together(client: Client, url: str) -> tuple[float, float]:
    """Has `DUE` jobs wait until one moment. Returns how late the last was woken, and how late the last had ended."""
    # The slots are up when the first one is done; how long that takes tells how long the others need until they sleep.
    begun = time.monotonic()
    assert client.submit("wakes", {"at": 0.0}).wait(PATIENCE_S) == "awake"
    due_at = time.time() + max(DUE_IN_S, 4 * (time.monotonic() - begun))
    jobs = client.submit_many("wakes", [{"at": due_at} for _ in range(DUE)])

    def waiting() -> int:
        return sum(client.job(job.id).workflows[0].state == "suspended" for job in jobs)

    wait_until(lambda: waiting() == DUE or time.time() > due_at)  # on a busy machine some come too late to sleep at all
    for job in jobs:
        assert job.wait(PATIENCE_S) == "awake"
    assert woken_at(url), "two slots brought none of them to its sleep in time"
    ended = max(client.job(job.id).ended_at for job in jobs)
    return max(woken_at(url)) - due_at, ended - due_at


@pytest.mark.slow
@pytest.mark.timeout(sized("seconds for all sleepers", short=600, long=3_000))
def test_sleepers_cost_next_to_nothing_and_wake_together_in_time(datacenter: Datacenter, tmp_path: Path) -> None:
    empty = datacenter.manager("m-0")
    datacenter.until_led()
    base = cost(empty)
    empty.kill()
    datacenter.url = f"sqlite:///{tmp_path}/sleepers.db"
    begun = time.monotonic()
    write_sleepers(datacenter.url, SLEEPERS)
    manager = datacenter.manager("m-1", "--state-budget", "400")  # 100,000 take 226 MiB as states are counted
    datacenter.until_led()
    module = tmp_path / "module.py"
    module.write_text(MODULE)
    worker = Node(tmp_path, "worker", "worker", str(module), "--engine", datacenter.url, "--managed", "--slots", "2")
    datacenter.workers.append(worker)
    client = datacenter.new_client(first="m-1")
    wait_until(lambda: any(one.workers for one in client.catalogue("wakes").workflows), why=datacenter.said)
    print(f"{SLEEPERS:,} sleepers were taken over after {time.monotonic() - begun:.1f} s")
    idle, each = measure_idle(manager, worker, base)
    late, ended = wake_together(client, datacenter.url)
    print(f"{DUE} were woken {late:.3f} s after their time at the latest, and ended {ended:.3f} s after it")
    assert max(idle) < MOST_IDLE
    assert each < MOST_JOB_BYTES
    assert late < MOST_LATE_S
