"""The leader's judgement of its workers, rule by rule: told reports, gossip and the time, asked what has to be journaled."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.control.messages.workers import AttemptReport, WorkerReport
from tenure.errors import LimitError, UnknownWorkerError
from tenure.health.extension import HealthcheckExtensionRequest
from tenure.health.node_states import HealthPiggyback, PoolWord
from tenure.health.signals import HealthClass, RoutingDecision
from tenure.jobs import JobBook, decide
from tenure.jobs.decisions import Command
from tenure.jobs.extensions import DenyExtension, GrantExtension, ResetExtensions
from tenure.jobs.workers import EvictWorker, ForgetWorker, JudgeWorker
from tenure.nodes.fleet.fleet import Fleet
from tenure.nodes.fleet.member import FleetSettings, Told

ROUTE, DRAIN, EVICT = RoutingDecision.ROUTE, RoutingDecision.DRAIN, RoutingDecision.EVICT
INVESTIGATE = RoutingDecision.INVESTIGATE
LANE = "default.p0"


class LeaderOfFleet:
    """A fleet with its journal: what it decides is folded, then counts. Time passes by seconds, each with a sweep."""

    def __init__(self, book: JobBook | None = None, now: float = 1_000.0, **settings: Any) -> None:
        self.book, self.now = book or JobBook(), now
        self.fleet = Fleet(FleetSettings(**settings))
        self.fleet.restore(self.book, now)
        self.done: list[Command] = []
        self.numbers: dict[str, int] = {}

    def commit(self, commands: list[Command]) -> None:
        for command in commands:
            self.book.apply_all(decide(self.book, command, self.now).events)
            self.done.append(command)
            if isinstance(command, JudgeWorker):
                self.fleet.told(command)
            elif isinstance(command, EvictWorker):
                self.fleet.gone(command, self.now)
            elif isinstance(command, ResetExtensions):
                self.fleet.was_reset(command.worker)

    def report(self, name: str = "w-1", *attempts: AttemptReport, **fields: Any) -> None:
        start = fields.setdefault("incarnation", f"{name}#1")
        self.numbers[start] = self.numbers.get(start, 0) + 1
        fields = {"slots": 2, "free": 2 - len(attempts), "lanes": (LANE,), "number": self.numbers[start], **fields}
        report = WorkerReport(worker=name, attempts=attempts, **fields)
        commands = self.fleet.hear(report, self.now)
        self.commit(commands)
        if any(isinstance(command, EvictWorker) for command in commands):
            self.commit(self.fleet.hear(report, self.now))

    def passing(self, seconds: int, *reporting: str) -> None:
        """Seconds pass; these workers report each of them, with nothing to do."""
        for _ in range(seconds):
            self.now += 1
            for name in reporting:
                self.report(name)
            self.commit(self.fleet.sweep(self.now))

    def told(self, name: str = "w-1", start: str = "") -> Told:
        return self.fleet.tell(name, start or f"{name}#1", self.now)

    def start(self, name: str) -> str:
        """Returns the start of a worker under which `report` reports."""
        return f"{name}#1"

    def of(self, kind: type[Command]) -> list[Any]:
        return [command for command in self.done if isinstance(command, kind)]


def attempt(steps: int = 1, *, job: str = "j", silent_s: float = 1.0, **rest: Any) -> AttemptReport:
    return AttemptReport(job_id=job, workflow="w", attempt=1, delivery=1, steps=steps, silent_s=silent_s, **rest)


def ask(progress: float = 0.5, counter: int | None = None, worker: str = "w-1") -> HealthcheckExtensionRequest:
    return HealthcheckExtensionRequest(worker, "long_workflow", progress, 0.0, 1, counter)


def test_a_worker_that_reports_is_routed_and_that_is_journaled_once() -> None:
    leader = LeaderOfFleet()
    leader.report()
    leader.passing(60, "w-1")
    assert [(type(command), command.verdict) for command in leader.done] == [(JudgeWorker, ROUTE)]
    assert leader.told()[:1] == (ROUTE,)
    assert leader.told().left_s == 30.0
    record = leader.book.state.workers["w-1"]
    assert (record.verdict, record.incarnation) == ("route", "w-1#1")


def test_a_worker_that_is_full_is_busy_and_yet_not_told_to_drain() -> None:
    leader = LeaderOfFleet()
    leader.report("w-1", attempt(), attempt(job="k"))
    [standing] = leader.fleet.standings(leader.now)
    assert (standing.node.health, standing.node.free) == (HealthClass.BUSY, 0)
    assert leader.told().verdict is ROUTE  # it pulls: the moment a slot is free it shall take the next work
    leader.report("w-1", attempt(2), attempt(2, job="k"), accepting=False)
    assert leader.told().verdict is DRAIN  # and this is what it says itself, full or not


def test_a_worker_that_takes_no_work_is_told_to_drain_and_routed_again_when_it_does() -> None:
    leader = LeaderOfFleet()
    leader.report()
    leader.report(accepting=False)
    assert (leader.told().verdict, leader.fleet.able(LANE)) == (DRAIN, frozenset())
    leader.report()
    assert (leader.told().verdict, leader.fleet.able(LANE)) == (ROUTE, {"w-1"})
    assert [command.verdict for command in leader.of(JudgeWorker)] == [ROUTE, DRAIN, ROUTE]


def test_a_worker_whose_work_stands_still_drains_until_its_deadline_and_is_evicted_after_it() -> None:
    leader = LeaderOfFleet()
    drained_at = evicted_at = 0
    for second in range(90):
        leader.report("w-1", attempt(5, silent_s=1.0 + second))
        leader.now += 1
        leader.commit(leader.fleet.sweep(leader.now))
        if leader.told().verdict is DRAIN and not drained_at:
            drained_at = second
        if leader.told().verdict is EVICT and not evicted_at:
            evicted_at = second
    assert 29 <= drained_at <= 31  # the interval
    assert 58 <= evicted_at <= 61  # and the deadline of the last report that showed progress
    [evicted] = leader.of(EvictWorker)
    assert "deadline passed" in evicted.reason or "nothing moves" in evicted.reason
    assert leader.book.state.workers["w-1"].verdict == "evict"


def test_a_silence_within_its_stall_or_one_that_was_declared_is_alive_and_moves_no_deadline() -> None:
    for allowed in ({"stall_s": 300.0}, {"quiet_s": 300.0}):  # a worker of the release before tells only its stall
        leader = LeaderOfFleet()
        for second in range(120):
            rest = {"quiet_s": 300.0 - second} if "quiet_s" in allowed else allowed
            leader.report("w-1", attempt(5, silent_s=float(second), **rest))
            leader.passing(1)
            assert leader.told().verdict is (ROUTE if second < 59 else DRAIN), second
        assert leader.told().left_s == 0.0  # what it earned is over, and it is told so
        [standing] = leader.fleet.standings(leader.now)
        assert 28 <= standing.node.left_s <= 30  # and yet it is not suspect, while its reports arrive
        assert not leader.of(EvictWorker)


def test_a_worker_slower_than_its_peers_is_investigated_and_gets_one_slot() -> None:
    leader = LeaderOfFleet()
    done = {"w-1": 0, "w-2": 0}
    stuck = attempt(1, job="s")
    for second in range(200):
        for name in done:
            done[name] += 1 if name == "w-2" or second < 100 else second % 15 == 0
            running = (
                [attempt(1, job=f"{name}-{done[name]}"), stuck] if name == "w-1" else [attempt(1, job=f"k{second}")]
            )
            leader.report(name, *running, completed=done[name])
        leader.passing(1)
    assert leader.told("w-2").verdict is ROUTE
    assert INVESTIGATE in [command.verdict for command in leader.of(JudgeWorker) if command.worker == "w-1"]


def test_a_silent_worker_is_suspect_and_evicted_after_thirty_seconds_and_wakes_to_hear_of_it() -> None:
    leader = LeaderOfFleet()
    leader.report("w-1")
    leader.report("w-2")
    leader.passing(29, "w-2")
    assert leader.told("w-1").verdict is ROUTE
    leader.passing(2, "w-2")
    [evicted] = leader.of(EvictWorker)
    assert (evicted.worker, evicted.incarnation) == ("w-1", "w-1#1")
    assert evicted.reason == "nothing was heard of it for 30 s"
    assert "deadline passed" in evicted.evidence["rule"]
    assert evicted.evidence["silent_for"] == 30
    leader.report("w-1")  # it was stopped, and goes on: that start of it is over
    assert leader.told("w-1")[:2] == (EVICT, evicted.reason)
    assert leader.fleet.able(LANE) == {"w-2"}
    leader.report("w-1", incarnation="w-1#2")
    assert leader.told("w-1", "w-1#2").verdict is ROUTE
    assert leader.told("w-1", "w-1#1").verdict is EVICT
    assert leader.book.state.workers["w-1"].incarnation == "w-1#2"


def test_while_most_fail_at_once_the_brake_holds_and_all_go_on_under_their_last_verdict() -> None:
    leader = LeaderOfFleet()
    names = ["w-1", "w-2", "w-3", "w-4"]
    for name in names:
        leader.report(name)
    leader.passing(200, "w-4")
    assert not leader.of(EvictWorker)
    assert {leader.told(name).verdict for name in names} == {ROUTE}
    assert "common cause" in leader.fleet.health.workers.brake_status(now=leader.now).reason
    leader.passing(3, *names)
    assert "common cause" not in leader.fleet.health.workers.brake_status(now=leader.now).reason
    assert not leader.of(EvictWorker)


def test_a_hold_does_not_last_for_ever() -> None:
    leader = LeaderOfFleet()
    for name in ("w-1", "w-2", "w-3"):
        leader.report(name)
    leader.passing(29 + 300 + 5)
    assert len(leader.of(EvictWorker)) == 1  # one in sixty seconds
    leader.passing(60)
    assert len(leader.of(EvictWorker)) == 2


def test_extensions_halve_are_journaled_and_move_the_deadline() -> None:
    leader = LeaderOfFleet()
    leader.report("w-1", attempt())
    granted = []
    for counter in range(1, 8):
        response, command = leader.fleet.extend(ask(0.1 * counter, counter), "w-1#1", leader.now)
        leader.commit([command])
        granted.append(response.extension_seconds)
        assert response.new_deadline == leader.now + leader.told().left_s
    assert granted == [30.0, 15.0, 7.5, 3.75, 1.875, 0.0, 0.0]
    assert leader.told().left_s == 30 + 58.125
    assert [command.count for command in leader.of(GrantExtension)] == [1, 2, 3, 4, 5]
    assert leader.of(DenyExtension)[0].reason == "Maximum extensions (5) exceeded"
    assert leader.of(GrantExtension)[0].evidence["active_workflows"] == 1
    record = leader.book.state.workers["w-1"]
    assert (record.extension_count, record.deadline) == (5, leader.now + 88.125)


def test_no_progress_since_the_last_extension_or_a_deadline_that_passed_is_denied() -> None:
    leader = LeaderOfFleet()
    leader.report("w-1", attempt())
    leader.commit([leader.fleet.extend(ask(0.6, 6), "w-1#1", leader.now)[1]])
    response, command = leader.fleet.extend(ask(0.6, 6), "w-1#1", leader.now)
    assert isinstance(command, DenyExtension)
    assert "No progress" in str(response.denial_reason)
    leader.now += 61
    response, _ = leader.fleet.extend(ask(0.9, 9), "w-1#1", leader.now)
    assert "suspect" in str(response.denial_reason)


def test_an_extension_is_for_the_incarnation_that_runs() -> None:
    leader = LeaderOfFleet()
    with pytest.raises(UnknownWorkerError):
        leader.fleet.extend(ask(), "w-1#1", leader.now)
    leader.report()
    with pytest.raises(UnknownWorkerError):
        leader.fleet.extend(ask(), "w-1#0", leader.now)


def test_a_completion_or_a_well_interval_gives_the_series_back_and_the_journal_knows() -> None:
    for well in (False, True):
        leader = LeaderOfFleet()
        leader.report("w-1", attempt())
        leader.commit([leader.fleet.extend(ask(0.5, 1), "w-1#1", leader.now)[1]])
        assert leader.book.state.workers["w-1"].extension_count == 1
        if well:
            leader.passing(32, "w-1")
        else:
            leader.passing(1)
            leader.report("w-1", completed=1)
        assert len(leader.of(ResetExtensions)) == 1
        assert leader.book.state.workers["w-1"].extension_count == 0


def test_a_new_leader_goes_on_with_verdicts_series_and_evictions_and_its_clocks_start_at_the_takeover() -> None:
    leader = LeaderOfFleet()
    for name in ("w-1", "w-2", "w-3"):
        leader.report(name, attempt(job=name))
    for counter in (1, 2):
        leader.commit([leader.fleet.extend(ask(0.5, counter), "w-1#1", leader.now)[1]])
    leader.report("w-2", accepting=False)
    leader.commit([EvictWorker(worker="w-3", incarnation="w-3#1", reason="gone")])
    journaled = leader.now + 30 + 45

    soon = LeaderOfFleet(JobBook.restore(leader.book.snapshot()), leader.now + 5)
    assert soon.fleet.left_s("w-1", soon.now) == journaled - soon.now  # the journaled value is later
    assert soon.fleet.left_s("w-2", soon.now) == 30
    assert (soon.told("w-1").verdict, soon.told("w-2").verdict, soon.told("w-3").verdict) == (ROUTE, DRAIN, EVICT)
    response, _ = soon.fleet.extend(ask(0.9, 9), "w-1#1", soon.now)
    assert response.extension_seconds == 7.5  # the third, not a first one again

    later = LeaderOfFleet(JobBook.restore(leader.book.snapshot()), leader.now + 500)
    assert later.fleet.left_s("w-1", later.now) == 30  # the takeover is later
    later.passing(29)
    assert not later.of(EvictWorker)
    later.passing(2)
    assert {command.worker for command in later.of(EvictWorker)} == {"w-1", "w-2"}


def test_a_report_that_was_overtaken_says_only_that_the_worker_lives() -> None:
    leader = LeaderOfFleet()
    leader.report("w-1", number=7)
    leader.now += 25
    leader.report("w-1", number=3, accepting=False)
    assert leader.told().verdict is ROUTE
    leader.now += 4
    leader.commit(leader.fleet.sweep(leader.now))
    assert leader.told().verdict is ROUTE


def test_of_two_workers_with_one_name_the_later_takes_nothing_until_the_other_is_silent() -> None:
    leader = LeaderOfFleet()
    leader.report("w-1")
    leader.report("w-1", incarnation="other")
    assert leader.told("w-1").verdict is ROUTE
    told = leader.told("w-1", "other")
    assert (told.verdict, "give each its own name" in told.reason) == (DRAIN, True)
    for _ in range(30):
        leader.passing(1, "w-1")
        leader.report("w-1", incarnation="other")
    assert leader.told("w-1", "other").verdict is DRAIN
    for _ in range(11):  # the first was killed, and the other is what its service started again
        leader.passing(1)
        leader.report("w-1", incarnation="other")
    assert leader.told("w-1", "other").verdict is ROUTE
    assert leader.told("w-1").verdict is EVICT
    assert "started anew as other" in leader.of(EvictWorker)[0].reason


def test_a_worker_that_leaves_is_forgotten_and_costs_the_brake_nothing() -> None:
    leader = LeaderOfFleet()
    for name in ("w-1", "w-2", "w-3"):
        leader.report(name)
    for name in ("w-1", "w-2"):
        leader.report(name, leaving=True, accepting=False)
    leader.passing(60, "w-3")
    assert not leader.of(EvictWorker)
    assert list(leader.book.state.workers) == ["w-3"]
    assert leader.told("w-1").verdict is DRAIN
    assert leader.fleet.health.workers.brake_status(now=leader.now).failing == 0


def test_a_report_that_a_worker_sent_before_it_left_and_that_comes_late_does_not_bring_it_back() -> None:
    """It was in the fleet for 30 s more, without a catalogue: the door was open to every name, and parked work was sent."""
    leader = LeaderOfFleet(forget_s=100)
    leader.report("w-1")
    leader.report("w-1", leaving=True, accepting=False)
    late = WorkerReport(worker="w-1", incarnation="w-1#1", lanes=(LANE,), number=1)
    assert (leader.fleet.may_register(late), leader.fleet.hear(late, leader.now)) == (False, [])
    assert (leader.told("w-1").verdict, leader.fleet.knows("w-1", "w-1#1")) == (DRAIN, False)
    # Its next start is welcome, and so is a node that counts on in the same process.
    leader.report("w-1", incarnation="w-1#2")
    assert leader.told("w-1", "w-1#2").verdict is ROUTE
    leader.report("w-1", incarnation="w-1#2", leaving=True)
    leader.report("w-1", incarnation="w-1#2")
    assert leader.told("w-1", "w-1#2").verdict is ROUTE


def test_the_word_that_a_worker_leaves_is_kept_for_a_while() -> None:
    leader = LeaderOfFleet(forget_s=100)
    leader.report("w-1")
    leader.report("w-1", leaving=True)
    late = WorkerReport(worker="w-1", incarnation="w-1#1", lanes=(LANE,), number=1)
    leader.passing(100)
    assert leader.fleet.hear(late, leader.now) == []
    leader.passing(1)
    assert leader.fleet.may_register(late)


def test_an_evicted_worker_that_never_comes_back_is_forgotten_after_a_while() -> None:
    leader = LeaderOfFleet(forget_s=100)
    leader.report("w-1")
    leader.report("w-2")
    leader.passing(125, "w-2")
    assert list(leader.book.state.workers) == ["w-1", "w-2"]
    leader.passing(10, "w-2")
    assert [command.worker for command in leader.of(ForgetWorker)] == ["w-1"]
    assert list(leader.book.state.workers) == ["w-2"]


# Gossip


def test_a_word_of_gossip_that_a_silent_worker_lives_moves_no_deadline() -> None:
    """A stranger kept a dead worker alive by saying so: 30 s without a report is 30 s, whatever gossip says."""
    leader = LeaderOfFleet()
    leader.report("w-1", attempt())
    leader.report("w-2")
    well = HealthPiggyback("w-1", "worker", True, 1, 1, 1, "healthy", waiting=1, advancing=1)
    for _ in range(31):
        leader.now += 1
        leader.report("w-2")
        leader.commit(leader.fleet.hear_gossip("w-1", PoolWord(leader.start("w-1"), True, well), leader.now))
        leader.commit(leader.fleet.sweep(leader.now))
    [evicted] = leader.of(EvictWorker)
    assert (evicted.worker, evicted.evidence["gossip"]) == ("w-1", "alive")
    assert evicted.evidence["silent_for"] == 30


def test_a_later_start_that_lives_in_the_pool_hastens_the_end_of_the_silent_one() -> None:
    """Gossip counts for the start that it names: the later one's life does not keep the dead one from being evicted."""
    leader = LeaderOfFleet()
    leader.report("w-1", attempt())
    leader.report("w-2")
    for _ in range(12):
        leader.now += 1
        leader.report("w-2")
        leader.commit(leader.fleet.hear_gossip("w-1", PoolWord("a later start", True), leader.now))
        leader.commit(leader.fleet.sweep(leader.now))
    [evicted] = leader.of(EvictWorker)
    assert (evicted.worker, evicted.incarnation) == ("w-1", leader.start("w-1"))
    assert evicted.evidence["silent_for"] == 10


@pytest.mark.parametrize("word", [PoolWord("another start", False), PoolWord("", True), PoolWord("", False)])
def test_a_word_that_is_not_about_this_start_changes_nothing(word: PoolWord) -> None:
    leader = LeaderOfFleet()
    leader.report("w-1")
    leader.report("w-2")
    for _ in range(25):
        leader.now += 1
        leader.report("w-2")
        leader.commit(leader.fleet.hear_gossip("w-1", word, leader.now))
        leader.commit(leader.fleet.sweep(leader.now))
    assert not leader.of(EvictWorker)
    assert next(one.node for one in leader.fleet.standings(leader.now) if one.node.name == "w-1").gossip == ""


def test_health_that_came_by_gossip_may_only_take_work_away() -> None:
    leader = LeaderOfFleet()
    leader.report("w-1")
    leader.now += 11
    full = HealthPiggyback("w-1", "worker", False, 0, 0, 0, "overloaded")
    leader.commit(leader.fleet.hear_gossip("w-1", PoolWord(leader.start("w-1"), True, full), leader.now))
    assert leader.told("w-1").verdict is DRAIN
    well = HealthPiggyback("w-1", "worker", True, 50, 9, 9, "healthy")
    leader.commit(leader.fleet.hear_gossip("w-1", PoolWord(leader.start("w-1"), True, well), leader.now))
    assert leader.told("w-1").verdict is DRAIN


def test_a_death_that_was_taken_back_counts_no_more() -> None:
    leader = LeaderOfFleet()
    for name in ("w-1", "w-2", "w-3"):
        leader.report(name)
    leader.now += 11
    leader.fleet.hear_gossip("w-1", PoolWord(leader.start("w-1"), False), leader.now)
    leader.fleet.hear_gossip("w-1", PoolWord(leader.start("w-1"), True), leader.now)
    leader.report("w-2")
    leader.report("w-3")
    leader.commit(leader.fleet.sweep(leader.now))
    assert not leader.of(EvictWorker)


def test_a_death_that_gossip_tells_of_counts_together_with_silence_and_not_alone() -> None:
    leader = LeaderOfFleet()
    leader.report("w-1")
    leader.report("w-2")
    for _ in range(20):
        leader.now += 1
        leader.report("w-2")  # it reports, whatever gossip says
        for name in ("w-1", "w-2"):
            leader.fleet.hear_gossip(name, PoolWord(leader.start(name), False), leader.now)
        leader.commit(leader.fleet.sweep(leader.now))
    [evicted] = leader.of(EvictWorker)
    assert (evicted.worker, evicted.evidence["gossip"]) == ("w-1", "dead")
    assert evicted.evidence["silent_for"] == 10  # not thirty
    assert leader.told("w-2").verdict is ROUTE


# Who can do it


def test_peers_are_the_other_workers_that_take_work_from_every_mailbox_it_serves() -> None:
    leader = LeaderOfFleet()
    leader.report("w-1", lanes=("a.p0", "b.p0"))
    leader.report("w-2", lanes=("a.p0",))
    assert (leader.told("w-1").peers, leader.told("w-2").peers) == (0, 1)
    leader.report("w-3", lanes=("b.p0",))
    assert leader.told("w-1").peers == 1
    leader.report("w-2", lanes=("a.p0",), accepting=False)
    assert (leader.told("w-1").peers, leader.fleet.able("a.p0")) == (0, {"w-1"})
    leader.report("w-1", lanes=("c.p0",))
    assert leader.fleet.able("a.p0") == frozenset()


@pytest.mark.parametrize("wrong", [{"healthcheck_s": 0.1}, {"healthcheck_s": float("nan")}, {"forget_s": 0}])
def test_settings_that_cannot_work_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(LimitError):
        FleetSettings(**wrong)  # type: ignore[arg-type]


def test_a_worker_that_an_operator_drained_is_not_able_whatever_the_verdict_on_it() -> None:
    """Exclude lists and peers count on those who would take the work: a drained one would not, and the work would lie."""
    leader = LeaderOfFleet()
    for name in ("w-1", "w-2"):
        leader.report(name)
    assert leader.fleet.able(LANE) == {"w-1", "w-2"}
    leader.fleet.drain({"w-2"})
    assert leader.fleet.able(LANE) == {"w-1"}
    assert leader.told("w-1").peers == 0
    leader.report("w-2")  # its reports, and a verdict of route, change nothing
    assert leader.fleet.able(LANE) == {"w-1"}
    leader.fleet.drain(())
    assert leader.fleet.able(LANE) == {"w-1", "w-2"}
    assert leader.told("w-1").peers == 1
