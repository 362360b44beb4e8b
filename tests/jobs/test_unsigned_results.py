"""Attempts whose results were refused for their signature: each has its turn to be followed up."""

from __future__ import annotations

from tests.jobs.desk import Desk

from tenure.jobs.unsigned_results import RefuseUnsigned, to_follow_up


def refused(desk: Desk, *names: str) -> None:
    for name in names:
        desk.submit(name)
        desk.run(name)
        [workflow] = desk.book.job(name).workflows
        desk.do(
            RefuseUnsigned(
                by="leader", job_id=name, workflow=workflow, attempt=1, worker="evil", why="it is not signed"
            )
        )


def named(desk: Desk, limit: int) -> list[str]:
    return [job_id for job_id, _ in to_follow_up(desk.book, limit)]


def test_work_that_runs_long_keeps_none_behind_it_from_being_looked_for() -> None:
    """The first of them were looked for again and again: a job whose message was gone was stranded behind a hundred that ran."""
    desk = Desk()
    refused(desk, "a", "b", "c")
    assert [named(desk, 2) for _ in range(3)] == [["a", "b"], ["c", "a"], ["b", "c"]]


def test_what_is_over_is_forgotten_and_one_look_reads_a_bounded_number() -> None:
    desk = Desk()
    refused(desk, *(f"j-{number}" for number in range(14)))
    for number in range(12):
        desk.result(f"j-{number}", result=1)
    assert named(desk, 1) == []
    assert named(desk, 1) == ["j-12"]
    assert len(desk.book.unsigned.noted) == 2
