"""A no-op loop beside the peers: how soon an idle worker begins a job, and how fast one worker drains a queue.

Everybody on the same private servers in the same run, in turn, three rounds; see `peers/README.md` for what is measured and how each is set
up. It ends within `MOST_S` whatever the peers do: then fewer rounds were played, and the table says so. Pick-up is that of `FunctionLoop` as it is; the drain is that of provisional claims in batches with one acknowledgement for
all, which is what DESIGN.md allows for short work, and beside it, without a bar, `FunctionLoop` one by one.

A peer that cannot be installed or started, or that fails on the way, is named, and is no failure. `BENCH_PEERS=celery,huey` measures only these.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tools.servers.redis import DURABLE

from bench.beside_raw import slow_disk
from bench.harness import Report
from bench.peers.contest import Contender
from bench.peers.environments import CannotInstall, python_of
from bench.peers.table import Row, Table
from bench.peers.temporal_server import TemporalServer
from tools.servers import CannotStart, Nats, Postgres, Valkey

ROUNDS = 3
MOST_S = 1_500.0
"""When no further round is begun by anybody who has one."""
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


ONE_THREAD = (
    "it hands over in one step, as ours does, but submits and works in one event loop; our engine may be called from any thread, "
    "so a job changes threads on its way in and on its way out"
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
        Entry("huey", "huey", "peer_huey", "redis"),
    ],
    "postgres": [
        Entry("procrastinate", "procrastinate", "peer_procrastinate"),
        Entry("saq", "saq", "peer_saq", "postgres"),
        Entry("dbos", "dbos", "peer_dbos", "postgres", jobs=1_000),
    ],
    "nats": [
        Entry("taskiq-nats", "nats", "peer_taskiq", "nats", sooner=ONE_THREAD),
        Entry("nats-py by hand", "nats", "peer_nats", jobs=20_000, sooner=ONE_THREAD),
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
    until = time.monotonic() + MOST_S
    table = Table()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tenure-peers-", dir="/tmp")))
        for broker, entries in ENTRIES.items():
            if not (entries := wanted(entries)):
                continue
            try:
                places = Places(stack.enter_context(server_of(broker)), folder)
            except CannotStart as why:
                report.note(f"{broker}: NOT MEASURED, nobody on it: {why}")
                table.missing += [(broker, entry.name, str(why)) for entry in entries]
                continue
            loop, batches = (ours(broker, places, folder, config) for config in ("loop", "batches"))
            peers = [one for entry in entries if (one := peer(report, table, stack, broker, entry, places, folder))]
            contest = Contest(report, table, broker, loop, batches, peers, until)
            contest.hold()
            tell(report, table, broker, loop, batches, contest.left)
    report.tables.append(table.text())


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
    report: Report, table: Table, stack: contextlib.ExitStack, broker: str, entry: Entry, places: Places, folder: Path
) -> Contender | None:
    try:
        python = python_of(entry.environment)
        if entry.environment == "temporal":
            url = stack.enter_context(TemporalServer(python.parent.parent)).url
        else:
            url = places.url()
    except (CannotInstall, CannotStart) as why:
        report.note(f"{broker}: {entry.name} was NOT MEASURED: {why}")
        table.missing.append((broker, entry.name, str(why)))
        return None
    place = folder / broker / entry.name.replace(" ", "-")
    return Contender(entry.name, entry.module, python, url, place, entry.config, entry.jobs, entry.sooner)


@dataclass
class Contest:
    """All on one broker, in turn, so that a machine that slows down slows everybody."""

    report: Report
    table: Table
    broker: str
    loop: Contender
    batches: Contender
    left: list[Contender]
    until: float

    def hold(self) -> None:
        everybody = [self.loop, self.batches, *self.left]
        try:
            for number in range(1, ROUNDS + 1):
                if not self._ours(number):
                    return
                for one in list(self.left):
                    if (time.monotonic() > self.until and one.pickups) or len(one.pickups) < number - 1:
                        continue  # what it has must do
                    self._play(one, number)
                for us in (self.loop, self.batches):
                    us.rest()
        finally:
            for one in everybody:
                one.close()

    def _ours(self, number: int) -> bool:
        try:
            for us in (self.batches, self.loop):
                if number == 1:
                    us.start()
                self._show(number, us.name, f"{us.drain():,.0f} jobs per second")
            self.batches.rest()
        except Exception as why:
            self.report.fail(f"{self.broker}: Tenure itself could not be measured: {why}"[:200])
            self.left.clear()
            return False
        return True

    def _play(self, one: Contender, number: int) -> None:
        try:
            if number == 1:
                one.start()
            rate, taken = one.drain(), one.pick_up_beside(self.loop)
            mine, theirs = statistics.median(taken.ours), statistics.median(taken.theirs)
            self._show(
                number, one.name, f"{rate:,.0f} jobs per second, pick-up {theirs:.2f} ms, ours beside it {mine:.2f} ms"
            )
        except Exception as why:  # whatever a peer does, the others are measured
            rounds = len(one.pickups)
            del one.drains[rounds:]  # of a round that it did not end
            what = f"failed in round {number}" if rounds else "was NOT MEASURED"
            self.report.note(f"{self.broker}: {one.name} {what}: {why}")
            if not rounds:
                self.left.remove(one)
                self.table.missing.append((self.broker, one.name, str(why)))
        finally:
            one.rest()

    def _show(self, number: int, name: str, text: str) -> None:
        left = max(0.0, self.until - time.monotonic())
        print(
            f"{'peers':<10} {self.broker}, round {number} of {ROUNDS}: {name}: {text} (at most {left / 60:.0f} min left)",
            flush=True,
        )


def tell(
    report: Report, table: Table, broker: str, loop: Contender, batches: Contender, peers: list[Contender]
) -> None:
    unfair = "" if broker in ("redis", "nats") else slow_disk()
    for other in peers:
        mine = [statistics.median(one.ours) for one in other.pickups]
        theirs = [statistics.median(one.theirs) for one in other.pickups]
        bar = None if other.sooner else 1.0
        pickup = report.beside(
            f"{broker}: pick-up, p50", mine, theirs, beside=other.name, unit="ms", at_most=bar, unfair=unfair
        )
        if other.sooner and statistics.median(mine) > statistics.median(theirs):
            report.note(f"{broker}: {other.name} picks up sooner: {other.sooner}")
        late = report.beside(
            f"{broker}: pick-up, p99",
            [p99([sample for one in other.pickups for sample in one.ours])],
            [p99([sample for one in other.pickups for sample in one.theirs])],
            beside=other.name,
            unit="ms",
        )
        fast, slow = (us.drains[: len(other.drains)] for us in (batches, loop))
        drain = report.beside(f"{broker}: drain, in batches", fast, other.drains, beside=other.name, at_least=1.0)
        single = report.beside(f"{broker}: drain, one by one", slow, other.drains, beside=other.name)
        table.rows.append(Row(broker, other.sooner, len(other.drains), pickup, late, drain, single))
    for one in peers:
        report.note(f"{broker}: {one.name}: {one.settings}")


def p99(samples: list[float]) -> float:
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
