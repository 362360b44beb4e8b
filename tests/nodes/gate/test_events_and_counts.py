"""What a gate tells those who watch it, in virtual time: events through a lost leader, counts that agree with the state, refusals said once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.nodes.gate.harness import GateWorld
from tests.worlds.gates.cast import Plan
from tests.worlds.planes import SimCaller, serve

from tenure.control.messages.events import EventPage, GetEvents
from tenure.control.messages.gates import AskDatacenter, DatacenterView
from tenure.control.messages.wire import Problem, ProblemKind
from tenure.jobs.gate_outbox import OwedKind, owed
from tenure.logs import log_to
from tenure.nodes.gate.probes import Probed, Prober, ProbeSettings, ProbeTools
from tenure.nodes.loop_keeper import LoopKeeper, ProductFailures
from tenure.sim.world import Host, World


@pytest.fixture
def nodes() -> Iterator[GateWorld]:
    made = GateWorld(Plan.of(2, 2))
    made.pass_time(3.0)
    yield made
    made.close()


def events(nodes: GateWorld, address: str = "", **asked: Any) -> EventPage:
    page = nodes.ask(GetEvents(limit=1_000, **asked), address)
    assert isinstance(page, EventPage), page
    return page


def test_a_cursor_of_a_lost_leader_goes_on_at_the_other_gate_without_a_gap_or_a_repetition(nodes: GateWorld) -> None:
    dead = nodes.leader()
    nodes.submit("one", target_datacenters=("a", "b"), steps=2)
    nodes.pass_time(1.0)
    before = events(nodes, dead.address, after="0")
    nodes.world.nodes[dead.address].crash()
    nodes.until(lambda: any(gate.leads for gate in nodes.living()), 15)
    nodes.until(lambda: nodes.job("one").ended)
    after = events(nodes, after=before.cursor)
    whole = events(nodes, after="0")
    told = [(line.cursor, line.event) for line in (*before.events, *after.events)]
    assert told == [(line.cursor, line.event) for line in whole.events]
    kinds = [event["type"] for _, event in told]
    assert (kinds.count("GateElected"), kinds.count("GateJobAccepted"), kinds.count("GateJobEnded")) == (2, 1, 1)


def test_filters_and_waiting_work_as_they_do_at_a_manager_and_at_a_gate_that_does_not_lead(nodes: GateWorld) -> None:
    other = next(gate for gate in nodes.living() if not gate.leads)
    nodes.submit("slow", target_datacenters=("a",), ends="hang")
    nodes.submit("here", target_datacenters=("a",), steps=1, queue="default")
    now = events(nodes, other.address).cursor
    page = events(nodes, other.address, after=now, job_id="here", kind=("GateJobEnded",), wait_s=8.0)
    assert [(line.event["type"], line.event["job_id"]) for line in page.events] == [("GateJobEnded", "here")]
    queued = events(nodes, after="0", queue="default")
    assert {line.event.get("job_id") for line in queued.events} == {"slow", "here"}
    assert events(nodes, after="0", queue="another").events == ()


def test_who_fell_behind_what_the_journal_keeps_is_told_so_and_given_the_state(nodes: GateWorld) -> None:
    nodes.submit("one", target_datacenters=("a",), steps=1)
    nodes.until(lambda: nodes.job("one").ended)
    gate = nodes.leader()
    ledger, journal = gate.leadership.ledger, gate.leadership.ledger.journal
    journal.snapshot(ledger.book.snapshot(), ledger.seq, epoch=gate.leadership.epoch)
    journal.truncate(ledger.seq)
    page = events(nodes, after="0")
    assert page.gap is not None
    assert [row["job_id"] for row in page.gap.state["jobs"]] == ["one"]
    one = events(nodes, after="0", job_id="one")
    assert one.gap is not None
    assert (one.gap.state["job_id"], one.gap.state["state"]) == ("one", "completed")
    unknown = events(nodes, after="0", job_id="nobody")
    assert unknown.gap is not None
    assert unknown.gap.state is None


def counted(nodes: GateWorld) -> tuple[Counter[str], Counter[tuple[str, OwedKind]]]:
    """What the state says, counted anew; and it is what is kept."""
    gate = nodes.leader()
    tracker, leader = gate.leadership.ledger.book, gate.leadership.leader
    assert leader is not None
    standings = Counter(info.standing for info in tracker.jobs.values())
    names = {"JobSubmission": "submission", "JobGlobalCancel": "cancel", "JobGlobalTimeout": "timeout"}
    messages = [one for info in tracker.jobs.values() for one in owed(tracker, info)]
    due = Counter((one.datacenter, OwedKind(names[type(one.message).__name__])) for one in messages)
    assert +tracker.standings == standings
    assert +leader.owed == due
    return standings, due


def test_counts_of_jobs_and_of_what_is_owed_agree_with_the_state_through_cuts_and_changes_of_leaders(
    nodes: GateWorld,
) -> None:
    nodes.submit("done", target_datacenters=("a", "b"), steps=1)
    nodes.until(lambda: nodes.job("done").ended)
    assert counted(nodes) == ({"completed": 1}, {})
    nodes.submit("cancelled", target_datacenters=("a", "b"), ends="hang", stuck_threshold=50.0)
    nodes.submit("late", target_datacenters=("b",), ends="hang", timeout_seconds=9.0, stuck_threshold=8.0)
    nodes.pass_time(2.0)
    mend = nodes.cut("b")
    nodes.submit("waiting", target_datacenters=("b",), steps=1)
    nodes.cancel("cancelled")
    nodes.pass_time(2.0)
    standings, due = counted(nodes)
    assert standings == {"completed": 1, "running": 2, "ending": 1}
    assert due == {("b", OwedKind.CANCEL): 1, ("b", OwedKind.SUBMISSION): 1}
    nodes.until(lambda: counted(nodes)[1].get(("b", OwedKind.TIMEOUT)), 20)
    nodes.world.nodes[nodes.leader().address].crash()
    nodes.until(lambda: any(gate.leads for gate in nodes.living()), 15)
    nodes.pass_time(1.0)
    counted(nodes)
    mend()
    nodes.until(lambda: all(nodes.job(name).ended for name in ("cancelled", "late", "waiting")), 30)
    standings, due = counted(nodes)
    assert (standings["cancelled"], due) == (1, {})


def test_a_manager_that_refuses_a_gate_is_named_once_with_what_to_do_about_it() -> None:
    said: list[str] = []
    world = World(1, keep_trace=None)
    answers = [
        Problem(kind=ProblemKind.FORBIDDEN, fact="wrong or no token", remedy="Set TENURE_TOKEN"),
        Problem(kind=ProblemKind.FORBIDDEN, fact="wrong or no token", remedy="Set TENURE_TOKEN"),
        Problem(kind=ProblemKind.UNAVAILABLE, fact="this node is starting", retryable=True),
        DatacenterView(datacenter="a", manager_id="m", leads=True),
        Problem(kind=ProblemKind.FORBIDDEN, fact="wrong or no token", remedy="Set TENURE_TOKEN"),
    ]
    heard: list[tuple[bool, str]] = []

    async def manager(host: Host) -> None:
        async def answer(sender: str, request: Any) -> Any:
            return answers.pop(0) if len(answers) > 1 else answers[0]

        serve(host, answer)
        await host.loop.create_future()

    async def gate(host: Host) -> None:
        keeper = LoopKeeper(host.clock, host.random, ProductFailures(host.clock, log_to(said.append)))
        settings = ProbeSettings(interval_s=1.0)
        tools = ProbeTools(SimCaller(host), settings, host.clock, host.random, keeper, log_to(said.append))

        def note(node: Probed[DatacenterView], answered: bool) -> None:
            heard.append((answered, node.error))

        await Prober(tools, ["m:1"], AskDatacenter(), DatacenterView, note).run()

    try:
        world.node("m:1", manager, engine="a").start()
        world.node("g:1", gate, engine="g").start()
        world.run_for(8.0)
    finally:
        world.close()
    assert [answered for answered, _ in heard][:5] == [False, False, False, True, False]
    assert [error for _, error in heard][:4] == [
        "it answers: wrong or no token",
        "it answers: wrong or no token",
        "it answers: this node is starting",
        "",
    ]
    # Refused, let in, refused again.
    assert said == ["m:1 does not answer to us: wrong or no token. Set TENURE_TOKEN"] * 2
