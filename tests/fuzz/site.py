"""A working datacenter that is fuzzed: a manager, a worker, and an honest client whose jobs must all complete."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import psutil

from tenure.client.client import Client
from tenure.control.messages.gates import AskGate
from tenure.control.messages.nodes import ListNodes, NodeList
from tenure.jobs import JobState, JobSubmission, WorkflowSpec
from tests.patience import PATIENCE_S, wait_until
from tests.process.datacenter.conftest import Datacenter, Node

APP = Path(__file__).parent / "app.py"
HONEST_QUEUE = "honest"
MEMORY_MB = 400
"""A manager has some 60 MB at rest, and thousands of fuzzed jobs of several kilobytes each here."""


class Honest:
    """A client that goes on submitting while others do harm. Each of its jobs must complete."""

    def __init__(self, client: Client, prefix: str) -> None:
        self._client, self._prefix = client, prefix
        self.submitted: list[str] = []
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def __enter__(self) -> Honest:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)

    def _go_on(self) -> None:
        while not self._stop.wait(0.3):
            try:
                self.submit()
            except Exception as error:
                self.errors.append(f"{type(error).__name__}: {error}")

    def submit(self) -> None:
        number = len(self.submitted)
        job_id = f"{self._prefix}-{number}"
        spec = WorkflowSpec(name="double", arguments={"n": number})
        self._client.submit_job(JobSubmission(job_id=job_id, workflows=(spec,), queue=HONEST_QUEUE))
        self.submitted.append(job_id)

    def check_all_completed(self, said: str = "", client: Client | None = None) -> None:
        """`client` asks in place of the one that submitted: after a restart that one knows nobody any more."""
        self._client = client or self._client
        assert not self.errors, self.errors[:3]
        for number, job_id in enumerate(self.submitted):
            view = self._client.wait(job_id, PATIENCE_S)
            assert view.state is JobState.COMPLETED, f"{job_id} is {view.state}: {view.reason}\n{said}"
            assert view.workflows[0].result == 2 * number


class FuzzedSite(Datacenter):
    """One manager and one worker, which also runs what is fuzzed."""

    def begin(self) -> None:
        self.start_nodes(1)
        self.epoch = self.client.leader().epoch

    def start_nodes(self, number: int) -> None:
        # A long term: on a busy machine the leader must not lose it because it is fuzzed.
        self.node = self.manager(f"m-{number}", "--term", "15")
        self.runner = self.fuzzed_worker()
        self.until_led()
        wait_until(self._has_a_worker, why=self.said)

    def _has_a_worker(self) -> bool:
        reply = self.client.ask(ListNodes())
        return isinstance(reply, NodeList) and bool(reply.workers)

    def fuzzed_worker(self) -> Node:
        arguments = (str(APP), "--engine", self.url, "--managed", "--slots", "2", "--grace", "0.5")
        queues = ("--queue", HONEST_QUEUE, "--queue", "default", "--queue", "fuzz")
        node = Node(self.folder, f"worker-{len(self.workers)}", "worker", *arguments, *queues)
        self.workers.append(node)
        return node

    def start_gate(self) -> Node:
        """A gate before this datacenter, once it leads and knows that jobs can go there."""
        place = f"local={next(iter(self.addresses.values()))}"
        arguments = ("--engine", f"sqlite:///{self.folder}/gate.db", "--name", "g-1", "--port", "0", "--probe", "0.3")
        gate = Node(self.folder, "g-1", "gate", "--datacenter", place, *arguments, "--term", "2")
        self.workers.append(gate)  # ended with the rest
        wait_until(lambda: "listens on" in gate.said() or gate.process.poll() is not None, why=gate.said)
        found = re.search(r"listens on (\S+)", gate.said())
        assert found is not None, gate.said()
        self.gate_address = found[1]
        self.gate_client = Client([self.gate_address])
        self.clients.append(self.gate_client)
        wait_until(lambda: "HEALTHY" in str(self.gate_client.ask(AskGate())), why=gate.said)
        return gate

    def check_unharmed(self) -> None:
        """Nobody ended, nobody else leads, and memory is bounded."""
        for node in (self.node, self.runner):
            assert node.process.poll() is None, f"{node.name} ended with {node.process.poll()}:\n{node.said()[-3_000:]}"
        leader = self.client.leader()
        assert leader.epoch == self.epoch, (
            f"epoch {leader.epoch}, and it was {self.epoch}:\n{self.node.said()[-3_000:]}"
        )
        used = psutil.Process(self.node.process.pid).memory_info().rss / 1e6
        assert used < MEMORY_MB, f"the manager has {used:.0f} MB"

    def restart(self) -> None:
        """Everything is killed and started again, as after a power cut."""
        self.node.kill()
        self.runner.kill()
        del self.managers["m-1"], self.addresses["m-1"]
        for client in self.clients:
            client.close()
        self.clients = []
        self.start_nodes(2)
        self.epoch = self.client.leader().epoch
