"""A peer in an environment of its own (`bench/peers/environments.py`), judged by the witness and by the log of its worker.

A job counts as given up when its process is gone, when the peer raised an error in it, or when another attempt began.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers.environments import FOLDER as ENVIRONMENTS
from bench.peers.environments import REQUIREMENTS, python_of
from bench.peers.temporal_server import TemporalServer
from tools.servers.postgres import FAST, Postgres
from tools.servers.redis import Valkey

from corpus.case import SCALE, Case
from corpus.job import Witness, _lives
from corpus.runtimes.runtime import Known, Runtime

ROOT = Path(__file__).resolve().parents[2]
SPARE = 4
"""Processes beyond the number of cases, so that a retry finds one."""
LONG_S = 12.0
"""A limit above the longest healthy job of the corpus."""


@dataclass(frozen=True)
class Peer:
    """A peer, what it needs, and its settings in words for the page. Times in the words are those of a real day; the run has a hundredth of them."""

    server: str
    defaults: str
    best: str
    longest_s: tuple[float, float] = (0.0, LONG_S)
    """The seconds until it gives a job up at last, at its defaults and at its best: nobody judges it before."""
    asks: bool = False
    """Only its own records show that it gave a job up."""
    processes: bool = False
    """One worker process has one event loop or one pool of threads: as many processes run as cases, with one place each, so that no case stops another."""
    tends: bool = False
    """At its best settings a process beside the workers starts stalled work again."""


PEERS = {
    "celery": Peer(
        "redis",
        "no limit; prefork pool",
        "soft limit 1,200 s and hard limit 1,300 s, acks_late, reject_on_worker_lost, autoretry_for every exception, prefetch 1, visibility timeout 3,600 s",
        (0.0, LONG_S + 1),
    ),
    "dramatiq": Peer(
        "redis",
        "time_limit 600 s, retries; one thread for each process, prefetch 1",
        "time_limit 1,200 s, retries; one thread for each process, prefetch 1",
        (600 / SCALE, LONG_S),
    ),
    "rq": Peer(
        "redis",
        "job_timeout 180 s, no retry; fork for each job",
        "job_timeout 1,200 s, Retry(max=3), state in job.meta; fork for each job",
        (180 / SCALE, LONG_S + 3),
    ),
    "taskiq": Peer(
        "redis",
        "no limit; Redis streams, idle_timeout 600 s; one task for each process, one message at a time",
        "timeout 1,200 s, retries, idle_timeout 1,500 s, a limit on the lock of its takeover; one task for each process, one message at a time",
        (600 / SCALE, LONG_S + 5),
    ),
    "arq": Peer(
        "redis",
        "job_timeout 300 s; one job for each process",
        "1,200 s by asyncio.wait_for and arq.Retry, because its own limit does not retry; one job for each process",
        (300 / SCALE, LONG_S + 3),
        processes=True,
    ),
    "saq": Peer(
        "redis",
        "timeout 10 s; one job for each process",
        "timeout 1,200 s, heartbeat 300 s, retries, sweeps from a process of their own, state in job.meta; a helper beats through declared silences; one job for each process",
        (2.0, LONG_S + 6),
        processes=True,
        tends=True,
    ),
    "procrastinate": Peer(
        "postgres",
        "no limit, no retry; one job for each process",
        "1,200 s by asyncio.wait_for, because it has no limit of its own, retry=3, and a process that retries the jobs of workers without a heartbeat for 300 s; one job for each process",
        processes=True,
        tends=True,
    ),
    "dbos": Peer(
        "postgres",
        "no limit; PostgreSQL; each process is an executor of its own, with one workflow",
        "workflow timeout 1,200 s, state in a recorded step, and a process that resumes what was cancelled; PostgreSQL; each process is an executor of its own, with one workflow",
        (0.0, LONG_S + 3),
        asks=True,
        processes=True,
        tends=True,
    ),
    "temporal": Peer(
        "temporal",
        "start_to_close 3,600 s, because one limit has to be given; one activity for each process",
        "start_to_close 1,200 s, heartbeat 300 s with throttling off, its own retries, state in the heartbeat's details; a helper beats through declared silences; one activity for each process",
        (3600 / SCALE, LONG_S),
        processes=True,
    ),
}


class PeerRuntime(Runtime):
    """One peer in one mode: `defaults` or `best`."""

    at_once = 20

    def __init__(self, name: str, mode: str) -> None:
        self._peer, self.name, self.mode = PEERS[name], name, mode
        is_best = mode == "best"
        self.settings = self._peer.best if is_best else self._peer.defaults
        self.longest_s = self._peer.longest_s[is_best]
        self.version = REQUIREMENTS[name][0]
        self._tenders = int(is_best and self._peer.tends)
        self._python = python_of(name)

    def start(self, folder: Path, places: int) -> None:
        self._folder, self._log = folder, folder / "worker.log"
        self._workers: list[subprocess.Popen[bytes]] = []
        self._orders = ["worker"] * (places + SPARE if self._peer.processes else 1) + ["tend"] * self._tenders
        self._gone: dict[str, float] = {}
        self._failed: dict[str, list[Any]] | None = None
        self._server: Any = None
        if self._peer.server == "redis":
            self._server = Valkey()
        elif self._peer.server == "postgres":
            self._server = Postgres({**FAST, "max_connections": "300"})
        elif self._peer.server == "temporal":
            self._server = TemporalServer(ENVIRONMENTS / "temporal")
        self._server.start()
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "CORPUS_URL": self._server.url,
            "CORPUS_RUN": str(folder),
            "CORPUS_MODE": self.mode,
            "CORPUS_PLACES": "1" if self._peer.processes else str(places),
            "CORPUS_LIMIT": "0" if self.mode == "defaults" else str(LONG_S),
            "PYTHONUNBUFFERED": "1",
        }

    def _call(self, order: str, *names: str) -> str:
        command = [str(self._python), "-m", f"corpus.runtimes.peer_{self.name}", order, *names]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{self.name} {order}: {done.stderr[-1500:]}")
        return done.stdout

    def submit(self, cases: list[Case]) -> None:
        self._call("submit", *(case.name for case in cases))
        command = [str(self._python), "-m", f"corpus.runtimes.peer_{self.name}"]
        with self._log.open("wb") as output:
            for order in self._orders:
                self._workers.append(
                    subprocess.Popen(
                        [*command, order],
                        env=self._environment,
                        stdout=output,
                        stderr=output,
                        cwd=self._folder,
                        start_new_session=True,
                    )
                )

    def watch(self, case: Case) -> None:
        """Notes when the process of the first attempt is gone without having ended."""
        lines = Witness(self._folder, case.name).lines()
        begun = next((line for line in lines if line["what"] == "begin"), None)
        ended = any(line["what"] in ("end", "error") for line in lines)
        if begun and not ended and case.name not in self._gone and not _lives(begun["pid"], begun["started"]):
            self._gone[case.name] = time.time()

    def known(self, case: Case) -> Known:
        lines = Witness(self._folder, case.name).lines()
        log = self._log.read_text(errors="replace")
        given_up = [line for line in lines if line["what"] in ("error", "given up")]
        times = [line["at"] for line in given_up] + ([self._gone[case.name]] if case.name in self._gone else [])
        text = "\n".join(line.get("trace", "") for line in given_up)
        if self._peer.asks:
            if self._failed is None:  # asked once, at the end of a batch
                self._failed = json.loads(self._call("failed"))
            if case.name in self._failed:
                times.append(self._failed[case.name][0])
        near = [log[max(0, at.start() - 4000) : at.end() + 6000] for at in re.finditer(re.escape(case.name), log)]
        return Known(min(times) if times else None, text + "\n".join(near[-6:]))

    def stop(self) -> None:
        try:
            # Killed again until none is left: one that was forking escapes the first look.
            until = time.monotonic() + 30
            while _signal_all(self._folder, signal.SIGKILL) and time.monotonic() < until:
                time.sleep(0.1)
            for worker in self._workers:
                worker.wait(20)
        finally:
            if self._server is not None:
                self._server.stop()


def _signal_all(folder: Path, number: signal.Signals) -> int:
    """Signals every process that this run started, and returns how many: they carry its folder in their environment."""
    mark, met = f"CORPUS_RUN={folder}".encode(), 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), number)
                met += 1
        except (OSError, ValueError):
            continue
    return met
