"""Which running attempt gives its slot to urgent work, and which never does (decision 0570)."""

from __future__ import annotations

from tests.jobs.desk import Desk

from tenure.jobs.attempts import RecordDispatched
from tenure.jobs.preemption import Preemption, Running, Waiting, choose, may_give_way, overdue
from tenure.jobs.queues import SetQueue
from tenure.jobs.steering import MoveJob


def waits(name: str, priority: int = 9, *able: str) -> Waiting:
    return Waiting((name, "w"), priority, 60.0, able or ("w1", "w2"))


def runs(name: str, loss_s: float = 5.0, *, priority: int = 0, worker: str = "w1") -> Running:
    return Running((name, "w"), worker, priority, loss_s)


def full(worker: str) -> int:
    return 0


def pairs(found: list[Preemption]) -> list[tuple[str, str]]:
    return [(one.victim.key[0], one.waiting.key[0]) for one in found]


def test_the_lowest_priority_goes_first_and_then_the_least_loss() -> None:
    running = [runs("a", 1.0, priority=5), runs("b", 9.0), runs("c", 3.0), runs("d", 0.0, priority=8)]
    assert pairs(choose([waits("u1"), waits("u2"), waits("u3")], running, full)) == [
        ("c", "u1"),
        ("b", "u2"),
        ("a", "u3"),
    ]


def test_nothing_gives_way_to_work_of_its_own_priority() -> None:
    assert choose([waits("u", 5)], [runs("a", priority=5), runs("b", priority=6)], full) == []


def test_a_slot_helps_only_on_a_worker_that_could_do_the_work() -> None:
    assert choose([waits("u", 9, "w3")], [runs("a"), runs("b", worker="w2")], full) == []
    assert pairs(choose([waits("u", 9, "w2")], [runs("a", 0.0), runs("b", worker="w2")], full)) == [("b", "u")]


def test_free_slots_are_counted_before_anybody_gives_way() -> None:
    def one_free(worker: str) -> int:
        return int(worker == "w2")

    assert pairs(choose([waits("u1"), waits("u2")], [runs("a")], one_free)) == [("a", "u2")]


def test_nobody_waits_in_vain_for_more_slots_than_there_are() -> None:
    assert pairs(choose([waits("u1"), waits("u2")], [runs("a")], full)) == [("a", "u1")]


def test_the_reason_names_who_waits_and_both_priorities() -> None:
    [one] = choose([waits("u")], [runs("a")], full)
    words = "'w' of job 'u' with priority 9 has waited for a slot for 60 s, and this attempt has priority 0"
    assert one.reason == words


class TestBook:
    def desk(self, preempt_after: float | None = 30.0) -> Desk:
        desk = Desk()
        desk.do(SetQueue(by="ada", queue="default", preempt_after=preempt_after))
        desk.submit("j")
        desk.run("j")
        desk.submit("u", priority=9)
        desk.do(RecordDispatched(by="leader", job_id="u", workflow="w", attempt=1))
        return desk

    def waiting(self, desk: Desk, now: float) -> list[str]:
        return [one.key[0] for one in overdue(desk.book, now, lambda key: ("w1",))]

    def test_work_is_overdue_when_it_has_waited_in_the_engine_for_as_long_as_its_queue_says(self) -> None:
        desk = self.desk()
        assert self.waiting(desk, desk.at + 29.0) == []
        assert self.waiting(desk, desk.at + 30.0) == ["u"]

    def test_a_queue_that_does_not_preempt_and_a_paused_one_have_none(self) -> None:
        assert self.waiting(self.desk(None), 1e9) == []
        desk = self.desk()
        desk.do(SetQueue(by="ada", queue="default", paused=True))
        assert self.waiting(desk, 1e9) == []

    def test_work_for_which_an_attempt_makes_way_already_asks_for_no_other(self) -> None:
        desk = self.desk()
        desk.do(MoveJob(by="leader", job_id="j", for_work="u/w"))
        assert self.waiting(desk, desk.at + 60.0) == []

    def test_only_an_attempt_with_newly_saved_work_may_give_way(self) -> None:
        desk = self.desk()
        assert may_give_way(desk.book, ("j", "w"), 1, "w1", 7)
        assert not may_give_way(desk.book, ("j", "w"), 1, "w1", 0), "it would begin from the start"
        assert not may_give_way(desk.book, ("j", "w"), 2, "w1", 7)
        assert not may_give_way(desk.book, ("j", "w"), 1, "w2", 7)
        assert not may_give_way(desk.book, ("u", "w"), 1, "w1", 7), "it does not run"
        assert not may_give_way(desk.book, ("gone", "w"), 1, "w1", 7)
        desk.do(MoveJob(by="leader", job_id="j", for_work="u/w"))
        assert not may_give_way(desk.book, ("j", "w"), 1, "w1", 7), "it was asked already"
        desk.fail("j", worker="w1", asked=True, retryable=False, mark=7)
        desk.run("j", attempt=2)
        assert not may_give_way(desk.book, ("j", "w"), 2, "w1", 7), "it has saved nothing since it last made way"
        assert may_give_way(desk.book, ("j", "w"), 2, "w1", 8)
