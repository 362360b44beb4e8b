"""Tenure as users start it: a manager and two workers on one SQLite file, every setting at its default but for the scale of time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from corpus.case import STALL_S, STUCK_S, Case
from corpus.runtimes.runtime import Known, Runtime
from tenure.client.client import Client
from tenure.engines import Engine

ROOT = Path(__file__).resolve().parents[2]
APP = Path(__file__).with_name("tenure_app.py")
GRACE_S = 1.0
LEASE_S = 6.0
"""Above a hundredth of the defaults: 0.05 s and 0.6 s are no times for processes."""


class TenureRuntime(Runtime):
    name = "tenure"
    settings = "stall threshold 300 s, stuck threshold 600 s, three attempts; grace and lease are not scaled below what processes need"
    after_s = 40.0  # its retries wait for a place behind all other cases
    at_once = 20
    frees_places = True

    def __init__(self, patience: float = 1.0) -> None:
        """`patience` multiplies the thresholds, for a machine that is busy with other tests."""
        self._stall_s, self._stuck_s = STALL_S * patience, STUCK_S * patience

    def start(self, folder: Path, places: int) -> None:
        self._folder, self._nodes, self._jobs = folder, [], {}
        self._url = f"sqlite:///{folder}/t.db"
        address = self._manager()
        options = ["--stall", str(self._stall_s), "--grace", str(GRACE_S), "--lease", str(LEASE_S)]
        for number in (1, 2):
            name = f"worker-{number}"
            slots = ["--slots", str(max(1, places // 2)), "--name", name]
            self._node(name, "worker", str(APP), "--managed", *slots, *options)
        self._client = Client([address])
        self._evidence = Engine.open(self._url)

    def _node(self, name: str, *arguments: str) -> Path:
        log = self._folder / f"{name}.log"
        command = [sys.executable, "-m", "tenure", arguments[0], *arguments[1:], "--engine", self._url]
        path = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "CORPUS_RUN": str(self._folder), "PYTHONPATH": path}
        with log.open("wb") as output:
            self._nodes.append(subprocess.Popen(command, stdout=output, stderr=output, env=environment))
        return log

    def _manager(self) -> str:
        log = self._node("manager", "manager", "--port", "0", "--name", "manager")
        until = time.monotonic() + 60
        while not (found := re.search(r"listens on ([^\s\"]+)", log.read_text())):
            if time.monotonic() > until:
                raise RuntimeError(f"the manager did not start: {log.read_text()}")
            time.sleep(0.05)
        return found[1]

    def submit(self, cases: list[Case]) -> None:
        for case in cases:
            workflow = "async_case" if case.is_async else "case"
            job = self._client.submit(
                workflow, {"name": case.name}, stall=self._stall_s, stuck=self._stuck_s, name=case.name
            )
            self._jobs[case.name] = (job, workflow)

    def known(self, case: Case) -> Known:
        job, workflow = self._jobs[case.name]
        why = self._client.why(job.id)
        failed = [
            link
            for link in why.why.links
            if link.evidence.get("cause") or (link.kind == "JobEnded" and why.why.state != "completed")
        ]
        if not failed:
            return Known()
        stored = self._evidence.store("evidence").get(f"{job.id}/{workflow}/1")
        text = why.text
        if stored is not None:
            found = msgspec.json.decode(stored)
            text += "\n".join([found["reason"], *(f"{key}: {value}" for key, value in found["evidence"].items())])
        return Known(failed[0].at, text)

    def stop(self) -> None:
        self._client.close()
        self._evidence.close()
        for node in self._nodes:
            node.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        for node in self._nodes:
            node.send_signal(signal.SIGTERM)  # the second one hands over now
        for node in self._nodes:
            try:
                node.wait(15)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()
