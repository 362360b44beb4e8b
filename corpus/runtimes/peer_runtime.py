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
from bench.peers.environments import python_of
from bench.peers.temporal_server import TemporalServer
from tools.servers.postgres import Postgres
from tools.servers.redis import Valkey

from corpus.case import Case
from corpus.job import Witness, _lives
from corpus.runtimes.runtime import Known, Runtime

ROOT = Path(__file__).resolve().parents[2]
SPARE = 4
"""Processes beyond the number of cases, so that a retry finds one."""
LONG_S = 12.0
"""A limit above the longest healthy job of the corpus."""


@dataclass(frozen=True)
class Peer:
    """A peer and what it needs."""

    server: str
    defaults: str
    best: str
    asks: bool = False
    """Only its own records show that it gave a job up."""
    processes: bool = False
    """One worker process has one event loop or one pool of threads: as many processes run as cases, with one place each, so that no case stops another."""


PEERS = {
    "celery": Peer("redis", "no limit", "soft and hard time limit, acks late, retries"),
    "dramatiq": Peer("redis", "limit 600 s", "time limit, retries"),
    "rq": Peer("redis", "limit 180 s", "job timeout, retries"),
    "taskiq": Peer("redis", "no limit", "timeout, retries"),
    "arq": Peer("redis", "limit 300 s", "job timeout", processes=True),
    "saq": Peer("redis", "limit 10 s", "timeout, heartbeat of the stall threshold, retries", processes=True),
    "procrastinate": Peer("postgres", "no limit", "retries (it has no limit for a job)", processes=True),
    "dbos": Peer("", "no limit", "workflow timeout", asks=True, processes=True),
    "temporal": Peer(
        "temporal", "start-to-close 1 h", "start-to-close, heartbeat of the stall threshold, retries", processes=True
    ),
}


class PeerRuntime(Runtime):
    """One peer in one mode: `defaults` or `best`."""

    at_once = 20

    def __init__(self, name: str, mode: str) -> None:
        self._peer, self.name, self.mode = PEERS[name], name, mode
        words = self._peer.defaults if mode == "defaults" else f"{self._peer.best}; limit {LONG_S:g} s"
        self.settings = f"{mode}: {words}"
        self._python = python_of(name)

    def start(self, folder: Path, places: int) -> None:
        self._folder = folder
        self._server: Any = None
        if self._peer.server == "redis":
            self._server = Valkey()
        elif self._peer.server == "postgres":
            self._server = Postgres()
        elif self._peer.server == "temporal":
            self._server = TemporalServer(ENVIRONMENTS / "temporal")
        if self._server is not None:
            self._server.start()
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "CORPUS_URL": self._server.url if self._server else "",
            "CORPUS_RUN": str(folder),
            "CORPUS_MODE": self.mode,
            "CORPUS_PLACES": "1" if self._peer.processes else str(places),
            "CORPUS_LIMIT": "0" if self.mode == "defaults" else str(LONG_S),
            "PYTHONUNBUFFERED": "1",
        }
        self._log = folder / "worker.log"
        self._processes = places + SPARE if self._peer.processes else 1

    def _call(self, order: str, *names: str) -> str:
        command = [str(self._python), "-m", f"corpus.runtimes.peer_{self.name}", order, *names]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{self.name} {order}: {done.stderr[-1500:]}")
        return done.stdout

    def submit(self, cases: list[Case]) -> None:
        self._call("submit", *(case.name for case in cases))
        command = [str(self._python), "-m", f"corpus.runtimes.peer_{self.name}", "worker"]
        with self._log.open("wb") as output:
            self._workers = [
                subprocess.Popen(
                    command,
                    env=self._environment,
                    stdout=output,
                    stderr=output,
                    cwd=self._folder,
                    start_new_session=True,
                )
                for _ in range(self._processes)
            ]
        self._gone: dict[str, float] = {}

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
            failed = json.loads(self._call("failed"))
            if case.name in failed:
                times.append(failed[case.name][0])
        near = [log[max(0, at.start() - 4000) : at.end() + 6000] for at in re.finditer(re.escape(case.name), log)]
        return Known(min(times) if times else None, text + "\n".join(near[-6:]))

    def stop(self) -> None:
        for number in (signal.SIGCONT, signal.SIGKILL):
            _signal_all(self._folder, number)
        for worker in self._workers:
            worker.wait(20)
        if self._server is not None:
            self._server.stop()


def _signal_all(folder: Path, number: signal.Signals) -> None:
    """Signals every process that this run started: they carry its folder in their environment."""
    mark = f"CORPUS_RUN={folder}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), number)
        except (OSError, ValueError):
            continue
