"""Work that waits, with real processes: one story that plays each line of issue 22 on SQLite and on PostgreSQL.

Two gates stand before two managers. Workers are killed while their work is suspended, while it wakes and while a step is recorded; one is stopped and
evicted. A leader and a gate are killed while everything waits.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.patience import wait_until
from tests.process.datacenter.conftest import Datacenter, Node
from tests.soak import sized
from tools.servers.process import free_port

from tenure.client.client import Client
from tenure.errors import JobFailed, NodeRefusedError, NodeUnavailableError
from tenure.jobs import JobState
from tools.servers import Postgres

APP = Path(__file__).parent / "waiting_app.py"
LEASE_S = 6
STEPS = sized("steps that are recorded while their slot is killed", short=150, long=3_000)
PARENTS = sized("parents that wait for their children on two slots", short=25, long=1_000)
CHILDREN = sized("children of each", short=6, long=10)
KILLS = sized("kills while a step is recorded", short=4, long=60)


class WaitingStory:
    """A datacenter behind two gates, and what its workflows wrote down."""

    def __init__(self, datacenter: Datacenter, folder: Path) -> None:
        self.datacenter, self.folder = datacenter, folder
        self.log = str(folder / "log")
        self._gates: dict[str, tuple[Node, str]] = {}

    def start(self) -> None:
        for name in ("m-1", "m-2"):
            self.datacenter.manager(name, "--healthcheck", "4", "--datacenter", "a", "--report", "1")
        managers = ",".join(self.datacenter.addresses.values())
        ports = {name: free_port() for name in ("gate-1", "gate-2")}
        for name, port in ports.items():
            options = ("--engine", f"sqlite:///{self.folder}/gates.db", "--port", str(port), "--term", "2")
            peers = [f"--peer=127.0.0.1:{ports[other]}" for other in ports if other != name]
            node = Node(self.folder, name, "gate", "--name", name, "--datacenter", f"a={managers}", *options, *peers)
            self.datacenter.workers.append(node)  # so that the datacenter ends it
            self._gates[name] = (node, f"127.0.0.1:{port}")
        for node, _ in self._gates.values():
            wait_until(lambda said=node.said: "listens on" in said(), why=node.said)
        self.datacenter.until_led()
        self.worker("anna")
        catalogue = self.datacenter.client.catalogue
        wait_until(lambda: any(one.workers for one in catalogue("asks").workflows), why=self.datacenter.said)

    def worker(self, name: str) -> Node:
        options = ("--slots", "2", "--lease", str(LEASE_S), "--grace", "0.5", "--name", name)
        node = Node(self.folder, name, "worker", str(APP), "--engine", self.datacenter.url, "--managed", *options)
        self.datacenter.workers.append(node)
        return node

    def through_gates(self) -> Client:
        """Returns a client that knows both gates."""
        client = Client([address for _, address in self._gates.values()])
        self.datacenter.clients.append(client)
        return client

    def kill_leading_gate(self) -> None:
        """Kills the gate that leads, once one does: on a busy machine a term of 2 s may just have been lost."""
        wait_until(lambda: bool(self._leading_gate()), why=self.datacenter.said)
        name = self._leading_gate() or next(iter(self._gates))
        self._gates.pop(name)[0].kill()

    def _leading_gate(self) -> str:
        for name, (_, address) in self._gates.items():
            with Client([address], patience_s=3) as client, suppress(NodeUnavailableError):
                if client.leader().leads:
                    return name
        return ""

    def stop(self, node: Node) -> None:
        """Stops a worker: on SQLite not while it holds the write lock, which nobody else could take then."""
        if self.datacenter.url.startswith("sqlite"):
            self.datacenter.stop_between_transactions(node)
        else:
            node.signal(signal.SIGSTOP)

    def lines(self, of: str) -> list[str]:
        found = Path(self.log).read_text().splitlines() if Path(self.log).exists() else []
        return [line.removeprefix(f"{of} ") for line in found if line.startswith(f"{of} ")]

    def children(self) -> tuple[str, str]:
        """Returns the ids of the two children of `parent`, once both have run."""
        wait_until(lambda: all(self.lines(f"child-{n}") for n in (2, 3)))
        return self.lines("child-2")[0], self.lines("child-3")[0]

    def has_waited(self, client: Client, *jobs: str) -> None:
        """Waits until each is suspended, or has ended: on a busy machine their time may be over before anybody looks."""
        for job in jobs:
            wait_until(
                lambda job=job: (
                    "suspended" in [one.state for one in client.job(job).workflows] or client.job(job).ended
                ),
                why=lambda job=job: client.why(job).text,
            )

    def runs_elsewhere(self, client: Client, job: str, holder: str) -> None:
        """Waits until the leader has heard that another worker has the job: from then on the end of its former holder moves it no more."""

        def heard() -> bool:
            (one,) = client.job(job).workflows
            return one.state == "running" and one.worker not in ("", holder)

        wait_until(heard, why=lambda: client.why(job).text)

    def is_suspended(self, client: Client, *jobs: str) -> None:
        for job in jobs:
            wait_until(
                lambda job=job: [one.state for one in client.job(job).workflows] == ["suspended"],
                why=lambda job=job: client.why(job).text,
            )


@pytest.fixture
def story(datacenter: Datacenter, tmp_path: Path) -> WaitingStory:
    return WaitingStory(datacenter, tmp_path)


def begin_to_wait(story: WaitingStory, client: Client, gates: Client) -> None:
    """Submits what the story follows. The signals of `early` come before any worker has the job."""
    log = story.log
    client.submit("asks", job_id="early", log=log, times=2, delay=1.0)
    for _ in range(2):
        client.signal("early", "approved", "first", id="mail-1")
    client.signal("early", "approved", "second", id="mail-2")
    client.submit("sleeps", job_id="sleeper", log=log, seconds=15)
    for job in ("killed", "cancelled"):
        client.submit("asks", job_id=job, log=log)
    client.submit("asks", job_id="twice", log=log, times=2)
    client.submit("asks", job_id="late", log=log, timeout=12)
    client.submit("parent", job_id="parent", log=log)
    gates.submit("asks", job_id="gated", log=log, times=2)
    assert client.get("early").wait(180) == ["first", "second"]
    story.has_waited(client, "sleeper", "late")
    story.is_suspended(client, "killed", "cancelled", "twice", "parent")
    story.is_suspended(client, *story.children())
    wait_until(lambda: story.lines("gated") == ["asked"], why=lambda: gates.why("gated").text)


def while_everything_waits(story: WaitingStory, worker: Node, client: Client, gates: Client) -> None:
    """Kills the only worker, the leader and the leading gate. Then the signals come, some of them twice."""
    client.signal("twice", "approved", "first", id="mail-1")
    story.is_suspended(client, "twice")
    worker.kill()
    gates.signal("gated", "approved", "one", id="g-1")
    story.datacenter.managers[story.datacenter.until_led()].kill()
    story.kill_leading_gate()
    story.datacenter.until_led()
    client, gates = story.datacenter.new_client(), story.through_gates()
    # The answer of the first may have been lost with its leader.
    client.signal("twice", "approved", "first", id="mail-1")
    client.signal("killed", "approved", {"by": "ada"})
    one, other = story.children()
    client.signal(one, "go")
    client.cancel("cancelled", "enough")
    for _ in range(2):
        gates.signal("gated", "approved", "one", id="g-1")
    story.worker("berta")
    assert client.get("killed").wait(180) == [{"by": "ada"}]
    assert client.job("cancelled").state is JobState.CANCELLED
    story.is_suspended(client, "twice", "parent", other)
    client.signal("twice", "approved", "second", id="mail-2")
    assert client.get("twice").wait(180) == ["first", "second"]
    client.signal(other, "go")
    assert client.get("parent").wait(180) == 13
    gates.signal("gated", "approved", "two", id="g-2")
    assert gates.get("gated").wait(180) == ["one", "two"]
    with suppress(JobFailed):
        client.get("late").wait(180)
    assert client.job("late").state is JobState.TIMED_OUT
    assert client.get("sleeper").wait(180) == {"at": 7}
    assert set(story.lines("sleeper")) == {"before", "after"}
    # Asleep it costs no attempt that its worker is killed. Where all of this took longer than its sleep, it was awake then.
    (slept,) = client.job("sleeper").workflows
    assert slept.attempt == 1 or "its time has come" in client.why("sleeper").text, client.why("sleeper").text
    if slept.attempt == 1:
        assert story.lines("sleeper") == ["before", "after"]  # each step once
    with pytest.raises(NodeRefusedError, match="ended"):
        client.signal("cancelled", "approved")


def while_it_wakes(story: WaitingStory, client: Client) -> None:
    """Ends the worker of work that has just been woken: once by a kill, once by an eviction while it is stopped."""
    # With the worker that was killed above, the one that is stopped below would be more than half: the brake would hold its eviction.
    story.worker("emil")
    nodes = {node.name: node for node in story.datacenter.workers}
    for job, following in (("evicted", "carl"), ("struck", "dora")):
        until = story.folder / f"{job}.go"
        client.submit("holds_when_awake", job_id=job, log=story.log, until=str(until))
        story.is_suspended(client, job)
        client.signal(job, "approved")
        wait_until(lambda job=job: "awake" in story.lines(job), why=lambda job=job: client.why(job).text)
        wait_until(lambda job=job: client.job(job).workflows[0].worker in nodes)  # its start is reported
        holder = nodes[client.job(job).workflows[0].worker]
        nodes[following] = story.worker(following)
        if job == "struck":
            holder.kill()
        else:
            story.stop(holder)
            wait_until(lambda: f"evicted {holder.name}" in story.datacenter.said(), why=lambda: str(client.nodes()))  # noqa: B023
        wait_until(lambda job=job: story.lines(job).count("awake") >= 2, why=lambda job=job: client.why(job).text)
        story.runs_elsewhere(client, job, holder.name)
        if job == "evicted":
            # Its slot is not stopped: until its lease is over it may run the last step too, though nobody records that.
            time.sleep(LEASE_S)
        until.touch()
        assert client.get(job).wait(180) == "done"
        lines = Counter(story.lines(job))
        # Its lease may run out before its healthcheck deadline. Then another has it already, and loses it to a third when nobody has heard of that by the eviction.
        assert lines.pop("awake") in (2, 3), lines
        assert lines == {"before": 1, "first": 1, "last": 1}
        if job == "evicted":
            holder.kill()


def while_steps_are_recorded(story: WaitingStory, client: Client) -> None:
    """Kills the slot again and again. A step may run twice only if its result was not acknowledged before."""
    enough = story.folder / "enough"
    client.submit("counts", job_id="counts", log=story.log, steps=STEPS, enough=str(enough))
    killed: set[int] = set()

    def fresh(of: str = "pid") -> set[int]:
        return {int(pid) for pid in story.lines(of)} - killed

    for _ in range(KILLS):
        wait_until(lambda: bool(fresh()), why=lambda: client.why("counts").text)
        # The last step does not run before all kills: however slow this test is, it strikes a job that is at work.
        acks = len(story.lines("ack"))
        wait_until(
            lambda acks=acks: len(story.lines("ack")) > acks + 2 or bool(fresh("waits")),
            why=lambda: client.why("counts").text,
        )
        for pid in fresh():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            killed.add(pid)
    enough.touch()
    assert client.get("counts").wait(180) == STEPS
    acknowledged: set[str] = set()
    for line in Path(story.log).read_text().splitlines():
        word, _, number = line.partition(" ")
        if word == "ack":
            acknowledged.add(number)
        assert not (word == "ran" and number in acknowledged), f"step {number} ran after its result was acknowledged"
    assert len(killed) >= KILLS
    assert len(acknowledged) == STEPS


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_work_that_waits_outlives_whoever_held_it(
    kind: str, own_server: Callable[[Postgres], Postgres], story: WaitingStory
) -> None:
    if kind == "postgres":
        story.datacenter.url = own_server(Postgres()).url
    try:
        story.start()
        client, gates = story.datacenter.client, story.through_gates()
        begin_to_wait(story, client, gates)
        while_everything_waits(story, story.datacenter.workers[-1], client, gates)
        client = story.datacenter.new_client()
        while_it_wakes(story, client)
        while_steps_are_recorded(story, client)
    finally:
        story.datacenter.close()  # before its server goes


@pytest.mark.slow
@pytest.mark.timeout(sized("seconds for all families", short=300, long=3_000))
@pytest.mark.parametrize("depth", [1, 5])
def test_parents_that_wait_for_their_children_need_no_more_than_two_slots(
    depth: int, datacenter: Datacenter, tmp_path: Path
) -> None:
    datacenter.manager("m-1")
    datacenter.until_led()
    options = ("--engine", datacenter.url, "--managed", "--slots", "2")
    datacenter.workers.append(Node(tmp_path, "worker", "worker", str(APP), *options))
    client = datacenter.client
    wait_until(lambda: any(one.workers for one in client.catalogue("family").workflows), why=datacenter.said)
    begun = time.monotonic()
    jobs = client.submit_many("family", [{"depth": depth, "children": CHILDREN} for _ in range(PARENTS)])
    assert {job.wait(2_000) for job in jobs} == {depth - 1 + CHILDREN}
    took = time.monotonic() - begun
    print(f"{PARENTS * (depth + CHILDREN):,} jobs of depth {depth} in {took:.1f} s, load {os.getloadavg()[0]:.1f}")
