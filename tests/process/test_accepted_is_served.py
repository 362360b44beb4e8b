"""What is accepted can be served. Each request of issue 16's table ended a manager, a leader or a worker, most of them for good; here is each, end to end.

A poisonous request may be refused or served. After it the same leader leads, honest jobs complete, and they also do after everything was killed and started again.

Rows that are tested with real processes elsewhere, in tests/process:
- a workflow that closes its file descriptors: slots/test_poison.py, test_a_workflow_that_closes_its_descriptors_ends_and_the_cause_is_told
- the whole worker killed with -9 at each start: slots/test_poison.py, test_work_that_kills_its_whole_worker_each_time_it_starts_is_a_dead_letter_after_its_attempts
- `--lease 5` with `--grace 5` and a hang: slots/test_poison.py, test_a_lease_as_short_as_the_grace_is_held_until_the_verdict_on_a_hang_is_recorded
- one damaged journal entry: datacenter/test_damaged_journal.py, test_a_manager_with_a_damaged_journal_waits_for_the_repair_and_leads
"""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.patience import wait_until
from tests.process.datacenter.conftest import Datacenter, Node, _source_tree, closed

from tenure.jobs import JobState, JobSubmission, WorkflowSpec
from tools.servers import Nats, Valkey

__all__ = ["_source_tree"]

APP = Path(__file__).parent / "honest_app.py"
PATIENT = ("--term", "10")
"""On a busy machine a manager does not lose its term by itself: a lost one is what these tests look for."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_200)]


class PoisonedSite(Datacenter):
    """A datacenter that is given poison. `check_serves` finds out whether it took any."""

    starts = 0
    honest = 0
    epoch = 0

    def begin(self, *manager_options: str, worker_options: tuple[str, ...] = ("--slots", "2")) -> None:
        PoisonedSite.starts += 1
        self.node = self.manager(f"m-{PoisonedSite.starts}", *PATIENT, *manager_options)
        self.runner = self.poison_worker(*worker_options)
        self.until_led()
        self.epoch = self.client.leader().epoch

    def poison_worker(self, *options: str) -> Node:
        arguments = (str(APP), "--engine", self.url, "--managed", *options)
        node = Node(self.folder, f"worker-{len(self.workers)}", "worker", *arguments)
        self.workers.append(node)
        return node

    def post(self, name: str, body: Any) -> tuple[int, dict[str, Any]]:
        """The status and the answer to a request that no client of ours would send."""
        host, _, port = next(reversed(self.addresses.values())).rpartition(":")
        with closing(http.client.HTTPConnection(host, int(port), timeout=180)) as connection:
            connection.request("POST", f"/v1/{name}", json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def submit(self, job_id: str, function: str = "double", /, **options: Any) -> tuple[int, dict[str, Any]]:
        arguments = options.pop("arguments", {"n": 1})
        spec = {"name": options.pop("workflow", "w"), "function": function, "arguments": arguments}
        spec["retry"] = {"max_attempts": options.pop("max_attempts", 2), "delay": 0.1}
        return self.post("submit", {"submission": {"job_id": job_id, "workflows": [spec], **options}})

    def check_serves(self, count: int = 3) -> None:
        """The same manager leads as before, and honest jobs complete."""
        assert self.node.process.poll() is None, self.node.said()[-3_000:]
        ids = []
        for _ in range(count):
            PoisonedSite.honest += 1
            job_id = f"honest-{PoisonedSite.honest}"
            spec = WorkflowSpec(name="double", arguments={"n": PoisonedSite.honest})
            self.client.submit_job(JobSubmission(job_id=job_id, workflows=(spec,)))
            ids.append((job_id, PoisonedSite.honest))
        for job_id, number in ids:
            view = self.client.wait(job_id, 180)
            assert view.state is JobState.COMPLETED, f"{job_id} is {view.state}: {view.reason}"
            assert view.workflows[0].result == 2 * number
        leader = self.client.leader()
        assert leader.epoch == self.epoch, f"epoch {leader.epoch} after {self.epoch}:\n{self.node.said()[-3_000:]}"

    def restart(self, *manager_options: str) -> None:
        self.close()
        self.clients, self.managers, self.addresses = [], {}, {}
        self.begin(*manager_options)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[PoisonedSite]:
    """A datacenter that nobody has started yet."""
    site = PoisonedSite(tmp_path)
    with closed(site):
        yield site


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoisonedSite]:
    """One datacenter on SQLite for all poisonous requests: what they leave behind, the next ones find."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2] / "src"), str(Path(__file__).parents[2])])
    site = PoisonedSite(tmp_path_factory.mktemp("poisoned"))
    with closed(site):
        site.begin("--report", "1")
        yield site
    if before is not None:
        os.environ["PYTHONPATH"] = before


QUEUES = ("my queue", "", "\u00e4", "q" * 200, "../q", "a\nb", "\u202e")


def send_bad_queues(site: PoisonedSite) -> None:
    for number, queue in enumerate(QUEUES):
        status, answer = site.submit(f"queue-{number}", queue=queue)
        assert status in (200, 400), answer
        template = {"job_id": "t", "workflows": [{"name": "double", "arguments": {"n": 1}}], "queue": queue}
        schedule = {"name": f"s-{number}", "every_s": 1.0, "job": template}
        status, answer = site.post("set_schedule", {"schedule": schedule})
        assert status in (200, 400), answer
        site.post("trigger_schedule", {"name": f"s-{number}", "job_id": f"run-{number}"})


def test_queue_names_that_no_mailbox_can_have_on_sqlite(shared: PoisonedSite) -> None:
    send_bad_queues(shared)
    shared.check_serves()


@pytest.mark.parametrize("kind", [Valkey, Nats])
def test_queue_names_that_no_mailbox_can_have_on_servers(
    kind: Callable[[], Any], own_server: Callable[[Any], Any], tmp_path: Path
) -> None:
    site = PoisonedSite(tmp_path)
    site.url = own_server(kind()).url
    with closed(site):
        site.begin()
        send_bad_queues(site)
        site.check_serves()
        site.restart()
        site.check_serves()


def submit_large(place: PoisonedSite, count: int) -> list[dict[str, Any]]:
    """Jobs that nobody serves, with 120 kB of arguments each. Returns the refusals."""
    refused = []
    for number in range(count):
        status, answer = place.submit(
            f"large-{number}", "unknown", arguments={"a": "x" * 120_000}, queue="nobody", park=True
        )
        if status != 200:
            assert status == 429, answer
            refused.append(answer)
    return refused


def test_a_state_over_64_mib_by_280_submissions_with_120_kb_of_arguments_each(place: PoisonedSite) -> None:
    """It took the state to 67 MB, and every manager after it ended at its first snapshot. In pages it is saved and read like any other."""
    place.begin()
    assert submit_large(place, 280) == []
    place.check_serves()
    place.restart()
    place.check_serves()


def test_a_state_at_its_budget_refuses_more_and_ends_make_room(place: PoisonedSite) -> None:
    options = ("--state-budget", "16")
    place.begin(*options)
    refused = submit_large(place, 100)
    assert refused, "the budget was never reached"
    assert refused[0]["retry_after_s"] >= 1
    assert "--keep-finished" in refused[0]["remedy"]
    # Room for honest work comes from ends, which are never refused.
    for number in range(20):
        status, answer = place.post("cancel", {"job_id": f"large-{number}"})
        assert status == 200, answer
    wait_until(lambda: place.submit("fits-again")[0] == 200, why=place.said)
    place.check_serves()
    place.restart(*options)
    place.check_serves()


def test_a_state_over_64_mib_by_200_cancels_of_unknown_and_very_long_ids(place: PoisonedSite) -> None:
    place.begin("--state-budget", "4")
    statuses = [place.post("cancel", {"job_id": f"{number}-" + "x" * 400_000})[0] for number in range(50)]
    assert set(statuses) <= {200, 400, 413, 429}
    # Short ones, which are legitimate, have a share of the state that leaves jobs their room.
    for number in range(3_000):
        status, answer = place.post("cancel", {"job_id": f"unknown-{number}", "reason": "r" * 150})
        if status != 200:
            assert (status, answer["kind"]) == (429, "too_many"), answer
            break
    else:
        raise AssertionError("tombstones without end were accepted")
    place.check_serves()
    place.restart("--state-budget", "4")
    place.check_serves()


def test_a_gate_address_that_no_name_can_be(shared: PoisonedSite) -> None:
    for number, host in enumerate(("\u202e", "x" * 300, "a..b", "", "-", "\x00", "http://")):
        status, answer = shared.submit(f"gate-{number}", gate_addr=[host, 1])
        assert status in (200, 400), answer
        status, answer = shared.submit(f"gates-{number}", gate_addr=["127.0.0.1", 0], gate_addrs=[[host, 70_000]])
        assert status in (200, 400), answer
    # One that may be a gate's, and is not: when the courier has tried it, it has tried all that came before.
    assert shared.submit("gate-last", gate_addr=["127.0.0.1", 9])[0] == 200
    wait_until(lambda: "no gate hears our reports" in shared.node.said() or shared.node.process.poll() is not None)
    shared.check_serves()


def test_a_rate_that_is_almost_nothing(shared: PoisonedSite) -> None:
    for rate in (5e-324, 1e-300, 1e308, -1.0, 0.0):
        status, answer = shared.post("set_queue", {"queue": "slow", "rate": rate})
        assert status in (200, 400), answer
        for number in range(3):
            assert shared.submit(f"slow-{rate}-{number}", queue="slow")[0] in (200, 400)
        shared.check_serves(1)


def test_cancels_and_reports_of_700_kb_depose_nobody(shared: PoisonedSite) -> None:
    big = "x" * 700_000
    shared.submit("known", "unknown", queue="nobody", park=True)
    for _ in range(5):
        for body in ({"job_id": big}, {"job_id": "known", "reason": big}, {"job_id": "known", "by": big}):
            status, answer = shared.post("cancel", body)
            assert status in (200, 400), answer
        for body in ({"worker": big}, {"worker": "w", "incarnation": big}, {"worker": "w", "version": big}):
            status, answer = shared.post("report", body)
            assert status in (200, 400), answer
        shared.check_serves(1)


def test_workflow_names_of_9_000_characters_leave_slots_to_honest_jobs(shared: PoisonedSite) -> None:
    for number in range(31):
        for options in ({"workflow": "w" * 9_000}, {"function": "f" * 9_000}):
            function = options.pop("function", "double")
            status, answer = shared.submit(f"long-{number}-{function[:1]}", function, **options)
            assert status in (200, 400), answer
    shared.check_serves(6)


def test_after_all_these_requests_everything_comes_back_from_a_power_cut(shared: PoisonedSite) -> None:
    shared.restart()
    shared.check_serves()


def test_work_that_nobody_serves_does_not_hold_up_what_is_behind_it(place: PoisonedSite) -> None:
    """Found by the fuzzer: a lone worker was never told that it is alone, and left each such job for 10 s to others that there are not."""
    place.begin()
    wait_until(lambda: bool(place.client.catalogue("double").workflows), why=place.said)
    status, said = place.submit("refused", "dubble")
    assert (status, "Did you mean 'double'?" in said["remedy"]) == (422, True), said
    for number in range(40):
        assert place.submit(f"typo-{number}", "dubble", park=True)[0] == 200
    place.check_serves()
    (parked,) = place.client.job("typo-0").workflows
    assert "a worker that serves 'dubble'" in parked.waits_for
