"""Keys and unique jobs on every engine, with real processes: limits of a key, turns by weight, and equal jobs, all while the leader is killed (issue 17).

What is asserted is an order or a count, read off the lines that the workflows write as they start and end. No time is: a busy machine changes neither.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.patience import wait_until
from tests.process.datacenter import catalogue_steps as steps
from tests.process.datacenter.conftest import Datacenter, Node
from tests.soak import sized

from tenure.client.client import Client
from tenure.errors import DuplicateJobError, NodeRefusedError
from tenure.jobs import JobState

OF_A = sized("jobs of tenant A before the ten of tenant B, on each engine", short=400, long=10_000)
MOST = 2
"""The limit of each key."""
EACH = 8
"""Jobs of each key with a limit: half of them with a higher priority."""
MODULE = """
import os
from pathlib import Path
from tenure import workflow

def note(log, text):
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{text}\\n".encode())
    os.close(descriptor)

@workflow
def counted(ctx, tenant: str, log: str, until: str = "") -> str:
    note(log, f"+ {tenant} {ctx.job}")
    for _ in ctx.polling(0.05, 500, "the file") if until else ():
        if Path(until).exists():
            break
    note(log, f"- {tenant} {ctx.job}")
    return tenant

@workflow(concurrency_key="args.tenant", max_per_key=1)
def alone(ctx, tenant: str, log: str, until: str = "") -> None:
    counted.function(ctx, tenant, log, until)

@workflow(unique_for=600, queue="equal")
def sync(ctx, account: int, log: str) -> int:
    note(log, f"sync {account}")
    return account
"""


class KeyedStory:
    """A datacenter, and what its workflows wrote down."""

    def __init__(self, datacenter: Datacenter, folder: Path) -> None:
        self.datacenter, self.folder = datacenter, folder
        self.go = folder / "go"

    def start(self) -> Client:
        for name in ("m-1", "m-2"):
            self.datacenter.manager(name)
        self.datacenter.until_led()
        self._worker(
            "many",
            "--slots",
            str(2 * MOST + 3),
            "--queue",
            "limited",
            "--queue",
            "equal",
            "--priority",
            "5",
            "--priority",
            "0",
        )
        self._worker("one", "--slots", "1", "--queue", "turns", "--queue", "weighted")  # what it does has one order
        client = self.datacenter.client
        wait_until(lambda: sum(len(one.workers) for one in client.catalogue("counted").workflows) == 2, why=self.said)
        return client

    def _worker(self, name: str, *options: str) -> None:
        module = self.folder / "keyed.py"
        module.write_text(MODULE)
        arguments = (str(module), "--engine", self.datacenter.url, "--managed", "--name", name, *options)
        self.datacenter.workers.append(Node(self.folder, name, "worker", *arguments))

    def said(self) -> str:
        return self.datacenter.said()

    def log(self, name: str) -> str:
        return str(self.folder / name)

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def order(self, name: str, sign: str) -> list[str]:
        """Returns the tenants of the jobs that began (+) or ended (-), each job once: on a busy machine a lease may run out, and its work is delivered again."""
        words = [line.split() for line in self.lines(name)]
        return [tenant for _, tenant, job in dict.fromkeys(tuple(each) for each in words if each[0] == sign)]


def tell(story: KeyedStory, *words: str) -> None:
    done = steps.tenure(story.datacenter, "queue", *words)
    assert done.returncode == 0, done.stderr


def begin_limits(story: KeyedStory, client: Client) -> None:
    """As many of each key as may be are at work, and stay so until they are told. Slots are free beside them."""
    tell(story, "limited", "--key", "args.tenant", "--max-per-key", str(MOST), "--pause")
    for tenant in ("a", "b"):
        arguments = {"tenant": tenant, "log": story.log("limited"), "until": str(story.go)}
        for priority in (0, 5):
            client.submit_many("counted", [arguments] * (EACH // 2), queue="limited", priority=priority)
    own = {"tenant": "own", "log": story.log("limited"), "until": str(story.go)}
    client.submit_many("alone", [own] * 3, queue="limited")
    client.resume_queue("limited")  # so the leader finds both priorities with one look
    at_work = {"a": MOST, "b": MOST, "own": 1}
    wait_until(lambda: Counter(story.order("limited", "+")) == at_work, why=lambda: str(story.lines("limited")))
    held = f"{MOST} are under way in queue 'limited', and {MOST} may be"
    waiting = [row.job_id for row in client.jobs(queue="limited", arg="tenant=a", state=JobState.PENDING).jobs]
    assert any(held in client.why(job_id).text for job_id in waiting)


def limits_hold(story: KeyedStory, client: Client) -> None:
    """The next leader sends no more of a key, whatever the last one had recorded, and what has room goes by."""
    passing = {"tenant": "passing", "log": story.log("limited")}
    for job in client.submit_many("counted", [passing] * 4, queue="limited"):
        assert client.get(job.id).wait(180) == "passing"
    assert Counter(story.order("limited", "+")) == {"a": MOST, "b": MOST, "own": 1, "passing": 4}
    story.go.touch()
    everything = {"a": EACH, "b": EACH, "own": 3, "passing": 4}
    wait_until(lambda: Counter(story.order("limited", "-")) == everything, why=story.said)
    running, most = set[tuple[str, str]](), Counter[str]()
    for line in story.lines("limited"):
        sign, tenant, job_id = line.split()
        (running.add if sign == "+" else running.discard)((tenant, job_id))
        most[tenant] = max(most[tenant], sum(one == tenant for one, _ in running))
    assert most["passing"] <= MOST
    assert (most["a"], most["b"], most["own"]) == (MOST, MOST, 1)
    done = [row.job_id for row in client.jobs(queue="limited", limit=100).jobs]
    assert len(done) == sum(everything.values())
    assert {client.wait(one, 180).state for one in done} == {JobState.COMPLETED}


def begin_turns(story: KeyedStory, client: Client) -> None:
    """Backlogs of A stand before the work of others. The slot has begun with both queues when this returns."""
    tell(story, "turns", "--key", "args.tenant", "--pause")
    tell(story, "weighted", "--key", "args.tenant", "--weight", "a=3", "--pause")
    for queue, backlog in (("turns", {"a": OF_A, "b": 10}), ("weighted", {"a": 60, "b": 30, "c": 30})):
        for tenant, count in backlog.items():
            arguments = {"tenant": tenant, "log": story.log(queue)}
            client.submit_many("counted", [arguments] * count, queue=queue)
    for queue in ("turns", "weighted"):
        client.resume_queue(queue)
    wait_until(lambda: min(len(story.order(queue, "-")) for queue in ("turns", "weighted")) >= 3, why=story.said)


def turns_were_taken(story: KeyedStory) -> None:
    wait_until(lambda: story.order("turns", "-").count("b") == 10, why=story.said)
    order = story.order("turns", "-")
    before = order[: len(order) - order[::-1].index("b")].count("a")
    assert before < 50, f"{before} of A were done before the last of B"
    wait_until(lambda: len(story.order("weighted", "-")) >= 50, why=story.said)
    done = Counter(story.order("weighted", "-")[:50])
    # 30, 10 and 10 by the weights. A new leader begins a new round, and what the last one sent stands before it. Equal turns are 17, 17 and 16.
    assert abs(done["a"] - 30) <= 6, done
    assert all(abs(done[tenant] - 10) <= 4 for tenant in "bc"), done


def begin_equal(story: KeyedStory, client: Client) -> dict[str, str]:
    """Returns the id of each job whose equals come under the next leader. None of them has started."""
    client.pause_queue("equal")
    log = story.log("equal")
    kept = client.submit("sync", account=7, log=log).id
    assert client.submit("sync", account=7, log=log).id == kept
    unless_equal = ("--unique-for", "600", "--on-duplicate", "reject")
    ran = steps.tenure(story.datacenter, "submit", "sync", "account=7", f"log={log}", *unless_equal)
    assert (ran.returncode, kept in ran.stderr) == (1, True), ran.stderr
    replaced = client.submit("sync", account=8, log=log, on_duplicate="replace", unique_for=600).id
    newer = client.submit("sync", account=8, log=log, on_duplicate="replace", unique_for=600).id
    assert client.job(replaced).state is JobState.CANCELLED
    keyed = client.submit("counted", tenant="x", log=log, queue="equal", unique_for=600, unique_key="k").id
    return {"kept": kept, "newer": newer, "keyed": keyed}


def equal_jobs_are_one(story: KeyedStory, client: Client, begun: dict[str, str]) -> None:
    log = story.log("equal")
    assert client.submit("sync", account=7, log=log).id == begun["kept"]
    spec = {"name": "sync", "arguments": {"account": 7, "log": log}}
    assert steps.post(story.datacenter, "submit", {"submission": {"job_id": "by-http", "workflows": [spec]}}) == 200
    with pytest.raises((DuplicateJobError, NodeRefusedError), match=begun["kept"]):
        client.submit("sync", account=7, log=log, unique_for=600, on_duplicate="reject")
    last = client.submit("sync", account=8, log=log, on_duplicate="replace", unique_for=600).id
    assert (last != begun["newer"], client.job(begun["newer"]).state) == (True, JobState.CANCELLED)
    options = {"queue": "equal", "unique_for": 600, "unique_key": "k"}
    assert client.submit("counted", tenant="y", log=log, **options).id == begun["keyed"]
    client.resume_queue("equal")
    for job_id, result in ((begun["kept"], 7), (last, 8), (begun["keyed"], "x")):
        assert client.get(job_id).wait(180) == result
    assert client.submit("sync", account=7, log=log).id == begun["kept"]  # also when it is done
    began = {line for line in story.lines("equal") if not line.startswith("-")}
    assert began == {f"+ x {begun['keyed']}", "sync 7", "sync 8"}


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_keys_have_limits_and_turns_and_equal_jobs_are_one_over_a_change_of_leaders(
    on_every_engine: Datacenter, tmp_path: Path
) -> None:
    story = KeyedStory(on_every_engine, tmp_path)
    client = story.start()
    begin_limits(story, client)
    begun = begin_equal(story, client)
    begin_turns(story, client)
    client = story.datacenter.change_leaders()
    turns_were_taken(story)
    limits_hold(story, client)
    equal_jobs_are_one(story, client, begun)
