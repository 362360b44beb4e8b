"""A no-op loop beside the peers: how soon an idle worker begins a job, and how fast one worker drains a queue.

Everybody on the same private servers in the same run, in turn, three rounds; see `peers/README.md` for what is measured and how each is set
up. Pick-up is that of `FunctionLoop` as it is; the drain is that of provisional claims in batches with one acknowledgement for
all, which is what DESIGN.md allows for short work, and beside it, without a bar, `FunctionLoop` one by one.

A peer that cannot be installed or started is named, and is no failure. `BENCH_PEERS=celery,huey` measures only these.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tools.servers.redis import DURABLE

from bench.beside_raw import disk_is_fast
from bench.harness import Report
from bench.peers.contest import Broken, Contender
from bench.peers.environments import CannotInstall, python_of
from bench.peers.temporal_server import TemporalServer
from tools.servers import CannotStart, Nats, Postgres, Valkey

ROUNDS = 3
OURS = 20_000
"""Jobs per drain of ours: as many as it takes to measure for a good part of a second."""


@dataclass(frozen=True)
class Entry:
    """One peer on one broker."""

    name: str
    environment: str
    module: str
    config: str = ""
    jobs: int = 2_000
    sooner: str = ""
    """Why it may pick up sooner than we do: then there is no bar on that, and the reason is told with the figure."""


POPS = (
    "its worker takes the job off the server in the same step that wakes it, and a job whose worker is killed is lost; "
    "we are woken, and then claim with a lease: one round trip more"
)
PUSHED = (
    "the server pushes to its open request and keeps no lease that fences; our claim is a second command in the log"
)

ENTRIES = {
    "redis": [
        Entry("celery", "celery", "peer_celery"),
        Entry("dramatiq", "dramatiq", "peer_dramatiq", jobs=4_000),
        Entry("taskiq", "taskiq", "peer_taskiq", jobs=4_000),
        Entry("arq", "arq", "peer_arq"),
        Entry("rq", "rq", "peer_rq", jobs=1_000),
        Entry("saq", "saq", "peer_saq", "redis"),
        Entry("streaq", "streaq", "peer_streaq"),
        Entry("huey", "huey", "peer_huey", "redis", sooner=POPS),
    ],
    "postgres": [
        Entry("procrastinate", "procrastinate", "peer_procrastinate"),
        Entry("saq", "saq", "peer_saq", "postgres"),
        Entry("dbos", "dbos", "peer_dbos", "postgres", jobs=1_000),
    ],
    "nats": [
        Entry("taskiq-nats", "nats", "peer_taskiq", "nats", sooner=PUSHED),
        Entry("nats-py by hand", "nats", "peer_nats", jobs=20_000, sooner=PUSHED),
    ],
    "sqlite": [
        Entry("huey", "huey", "peer_huey", "sqlite", jobs=4_000),
        Entry("dbos", "dbos", "peer_dbos", "sqlite", jobs=1_000),
        Entry("temporal dev server", "temporal", "peer_temporal", jobs=150),
    ],
}


class Places:
    """A place of its own for each contender, on the one server of a broker."""

    def __init__(self, server: Valkey | Postgres | Nats | None, folder: Path) -> None:
        self._server, self._folder = server, folder
        self._given = 0

    def url(self) -> str:
        """A place that nobody else has: a database, a numbered database, a namespace, a file."""
        self._given += 1
        if isinstance(self._server, Valkey):
            return self._server.url_of(self._given)
        if isinstance(self._server, Postgres):
            return self._server.url_of(self._server.new_database())
        if isinstance(self._server, Nats):
            return self._server.url
        return f"sqlite:///{self._folder}/tenure-{self._given}.db"


def run(report: Report) -> None:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tenure-peers-", dir="/tmp")))
        for broker, entries in ENTRIES.items():
            try:
                places = Places(stack.enter_context(server_of(broker)), folder)
            except CannotStart as why:
                report.note(f"{broker}: {why}")
                continue
            loop, batches = (ours(broker, places, folder, config) for config in ("loop", "batches"))
            peers = [one for entry in wanted(entries) if (one := peer(report, stack, broker, entry, places, folder))]
            compete(report, [loop, batches, *peers])
            tell(report, broker, loop, batches, [one for one in peers if one.rounds])


def server_of(broker: str) -> contextlib.AbstractContextManager[Valkey | Postgres | Nats | None]:
    """Durable as people run them: PostgreSQL syncs every commit, Valkey every second, NATS as it comes."""
    if broker == "redis":
        return Valkey({**DURABLE, "appendfsync": "everysec"})
    if broker == "postgres":
        return Postgres({"shared_buffers": "128MB"})
    return Nats() if broker == "nats" else contextlib.nullcontext()


def wanted(entries: list[Entry]) -> list[Entry]:
    names = os.environ.get("BENCH_PEERS", "").split(",")
    return [entry for entry in entries if names == [""] or entry.environment in names]


def ours(broker: str, places: Places, folder: Path, config: str) -> Contender:
    url = places.url()
    if broker == "nats":
        url += f"?namespace={config}"
    jobs = OURS if config == "batches" else OURS // 4
    return Contender(
        f"tenure, {config}", "peer_tenure", Path(sys.executable), url, folder / broker / config, config, jobs
    )


def peer(
    report: Report, stack: contextlib.ExitStack, broker: str, entry: Entry, places: Places, folder: Path
) -> Contender | None:
    try:
        python = python_of(entry.environment)
        if entry.environment == "temporal":
            url = stack.enter_context(TemporalServer(python.parent.parent)).url
        else:
            url = places.url()
    except (CannotInstall, CannotStart) as why:
        report.note(f"{broker}: {entry.name} was NOT MEASURED: {why}")
        return None
    place = folder / broker / entry.name.replace(" ", "-")
    return Contender(entry.name, entry.module, python, url, place, entry.config, entry.jobs, entry.sooner)


def compete(report: Report, contenders: list[Contender]) -> None:
    """In turn, so that a machine that slows down slows everybody."""
    left = list(contenders)
    try:
        for number in range(ROUNDS):
            for one in list(left):
                try:
                    if number == 0:
                        one.start()
                    one.play()
                except Broken as why:
                    left.remove(one)
                    one.rounds.clear()
                    report.note(f"{one.folder.parent.name}: {one.name} was NOT MEASURED: {why}")
    finally:
        for one in contenders:
            one.close()


def tell(report: Report, broker: str, loop: Contender, batches: Contender, peers: list[Contender]) -> None:
    if not loop.rounds or not batches.rounds:
        report.fail(f"{broker}: Tenure itself could not be measured")
        return
    mine = [statistics.median(one.pickups_ms) for one in loop.rounds]
    fair = broker in ("redis", "nats") or disk_is_fast(report, f"{broker}: pick-up")
    for other in peers:
        theirs = [statistics.median(one.pickups_ms) for one in other.rounds]
        bar = 1.0 if fair and not other.sooner else None
        report.beside(f"{broker}: pick-up, p50", mine, theirs, beside=other.name, unit="ms", at_most=bar)
        if other.sooner and statistics.median(mine) > statistics.median(theirs):
            report.note(f"{broker}: {other.name} picks up sooner: {other.sooner}")
        report.beside(f"{broker}: pick-up, p99", [p99(loop)], [p99(other)], beside=other.name, unit="ms")
    for other in peers:
        rates = [one.drained_per_s for one in other.rounds]
        fast, slow = ([one.drained_per_s for one in us.rounds] for us in (batches, loop))
        report.beside(f"{broker}: drain, in batches", fast, rates, beside=other.name, at_least=1.0)
        report.beside(f"{broker}: drain, one by one", slow, rates, beside=other.name)
    for one in peers:
        report.note(f"{broker}: {one.name}: {one.settings}")


def p99(one: Contender) -> float:
    everything = sorted(sample for part in one.rounds for sample in part.pickups_ms)
    return everything[min(len(everything) - 1, int(len(everything) * 0.99))]
