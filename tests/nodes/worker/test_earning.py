"""When a worker asks for time past a job's deadline, and with what (decision 0355). Each rule is also broken, and a story must notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tenure.control.messages.workers import AttemptReport, ExtendDeadline, NearDeadline
from tenure.nodes.worker import directives
from tenure.nodes.worker.directives import JobEarning, Pace


def attempt(job_id: str = "j", *, number: int = 1, steps: int = 0, **rest: Any) -> AttemptReport:
    return AttemptReport(job_id=job_id, workflow="w", attempt=number, delivery=1, steps=steps, **rest)


def near(left_s: float = 9.0, job_id: str = "j") -> NearDeadline:
    return NearDeadline(job_id=job_id, left_s=left_s, span_s=10.0)


def ask(earning: JobEarning, left_s: float = 9.0, job_id: str = "j", pace: Pace | None = None) -> ExtendDeadline | None:
    return earning.request(near(left_s, job_id), "w-1", pace or Pace(), 100.0, 1_000.0)


def looked(*reports: AttemptReport) -> JobEarning:
    """It has asked about the first look, and had no reason to send anything."""
    earning = JobEarning()
    earning.look(reports)
    assert ask(earning) is None
    return earning


def it_asks_when_the_job_advanced_since_its_deadline_came_near() -> None:
    earning = looked(attempt(steps=5))
    earning.look([attempt(steps=6)])
    request = ask(earning)
    assert request is not None
    assert (request.job_id, request.request.progress_counter, request.since) == ("j", 1, 0)


def a_job_that_stands_still_is_asked_for_while_two_reports_still_come_however_short_its_span() -> None:
    earning = looked(attempt(steps=5))
    short = NearDeadline(job_id="j", left_s=2.0, span_s=3.0)
    assert earning.request(short, "w-1", Pace(), 100.0, 1_000.0) is not None
    assert ask(looked(attempt(steps=5)), left_s=4.0) is None


def beats_of_work_that_counts_are_no_progress() -> None:
    earning = looked(attempt(steps=5, news=7, counts=True))
    earning.look([attempt(steps=50, news=7, counts=True)])
    assert ask(earning) is None
    earning.look([attempt(steps=51, news=8, counts=True)])
    assert ask(earning) is not None


def the_first_sight_of_an_attempt_is_no_progress() -> None:
    earning = JobEarning()
    earning.look([attempt(steps=500)])
    assert ask(earning) is None


def after_an_answer_the_next_request_needs_a_step() -> None:
    earning = looked(attempt(steps=5))
    earning.look([attempt(steps=6)])
    earning.answered("j", 1)
    assert ask(earning) is None
    earning.look([attempt(steps=7)])
    request = ask(earning)
    assert request is not None
    assert request.since == 1


def work_that_stands_still_is_asked_for_once_shortly_before_the_end() -> None:
    earning = looked(attempt(steps=5, news=3, counts=True))
    assert ask(earning, 4.0) is None
    request = ask(earning, 3.0)
    assert request is not None
    assert request.request.progress_counter == request.since
    earning.answered("j", request.since)
    assert ask(earning, 2.0) is None
    # Its deadline was moved by somebody else, and comes near again: it is asked for again.
    earning.keep_only(())
    assert ask(earning, 3.0) is not None


def the_counter_never_falls_when_the_next_attempt_begins_here() -> None:
    earning = looked(attempt(steps=5))
    earning.look([attempt(steps=6)])
    earning.answered("j", 1)
    earning.look([attempt(number=2, steps=0)])
    earning.look([attempt(number=2, steps=1)])
    request = ask(earning)
    assert request is not None
    assert (request.request.progress_counter, request.since) == (2, 1)


def one_job_does_not_earn_by_the_steps_of_another() -> None:
    earning = JobEarning()
    earning.look([attempt("j", steps=1), attempt("k", steps=1)])
    assert (ask(earning), ask(earning, job_id="k")) == (None, None)
    earning.look([attempt("j", steps=1), attempt("k", steps=2)])
    assert ask(earning) is None
    assert ask(earning, job_id="k") is not None


def the_estimate_is_from_the_observed_pace() -> None:
    pace, earning = Pace(), JobEarning()
    for now, fraction in ((0.0, 0.1), (100.0, 0.6)):
        pace.look([attempt(steps=int(now), fraction=fraction)], now)
        earning.look([attempt(steps=int(now), fraction=fraction)])
        request = ask(earning, pace=pace)
    assert request is not None
    assert request.request.current_progress == 0.6
    assert request.request.estimated_completion == pytest.approx(1_000.0 + 80.0)  # 50 % took 100 s, and 40 % are left


def nothing_is_asked_for_a_job_that_no_longer_runs_here() -> None:
    earning = looked(attempt(steps=5))
    earning.look([attempt(steps=6)])
    earning.look([])
    assert ask(earning) is None


STORIES: tuple[Callable[[], None], ...] = (
    it_asks_when_the_job_advanced_since_its_deadline_came_near,
    a_job_that_stands_still_is_asked_for_while_two_reports_still_come_however_short_its_span,
    beats_of_work_that_counts_are_no_progress,
    the_first_sight_of_an_attempt_is_no_progress,
    after_an_answer_the_next_request_needs_a_step,
    work_that_stands_still_is_asked_for_once_shortly_before_the_end,
    the_counter_never_falls_when_the_next_attempt_begins_here,
    one_job_does_not_earn_by_the_steps_of_another,
    the_estimate_is_from_the_observed_pace,
    nothing_is_asked_for_a_job_that_no_longer_runs_here,
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_worker_asks_for_its_jobs(story: Callable[[], None]) -> None:
    story()


# Each rule broken

Patch = pytest.MonkeyPatch


def never_asking(patch: Patch) -> None:
    patch.setattr(JobEarning, "request", lambda *given: None)


def counting_every_beat(patch: Patch) -> None:
    patch.setattr(directives, "advanced", lambda before, now: now.steps > before.steps)


def counting_only_news(patch: Patch) -> None:
    patch.setattr(directives, "advanced", lambda before, now: now.news > before.news)


def counting_the_first_sight(patch: Patch) -> None:
    sound = JobEarning.look

    def look(self: Any, attempts: Any) -> None:
        self._seen = {one.name: attempt(one.job_id, number=one.attempt, steps=-1) for one in attempts} | self._seen
        sound(self, attempts)

    patch.setattr(JobEarning, "look", look)


def forgetting_the_answer(patch: Patch) -> None:
    patch.setattr(JobEarning, "answered", lambda self, job_id, counter: None)


def counting_from_zero_with_each_attempt(patch: Patch) -> None:
    sound = JobEarning.look

    def look(self: Any, attempts: Any) -> None:
        if any(one.name not in self._seen for one in attempts):
            self._ticks = 0
        sound(self, attempts)

    patch.setattr(JobEarning, "look", look)


def one_counter_for_all_jobs(patch: Patch) -> None:
    sound = JobEarning.look

    def look(self: Any, attempts: Any) -> None:
        sound(self, attempts)
        for one in attempts:
            self._counters[one.job_id] = self._ticks

    patch.setattr(JobEarning, "look", look)


def asking_without_progress_at_once(patch: Patch) -> None:
    patch.setattr(directives, "NEAR_SHARE", 1.0)


def never_asking_without_progress(patch: Patch) -> None:
    patch.setattr(directives, "NEAR_SHARE", 0.0)


def asking_only_once_in_a_life(patch: Patch) -> None:
    patch.setattr(JobEarning, "keep_only", lambda self, jobs: None)


def no_estimate(patch: Patch) -> None:
    patch.setattr(Pace, "remaining", lambda self, attempts, now: None)


def asking_for_what_is_gone(patch: Patch) -> None:
    sound = JobEarning.look

    def look(self: Any, attempts: Any) -> None:
        before = dict(self._seen)
        sound(self, attempts)
        self._seen = before | self._seen

    patch.setattr(JobEarning, "look", look)


MUTANTS = (
    never_asking,
    counting_every_beat,
    counting_only_news,
    counting_the_first_sight,
    forgetting_the_answer,
    counting_from_zero_with_each_attempt,
    one_counter_for_all_jobs,
    asking_without_progress_at_once,
    never_asking_without_progress,
    asking_only_once_in_a_life,
    no_estimate,
    asking_for_what_is_gone,
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_worker_that_breaks_a_rule_is_found(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    found = []
    for story in STORIES:
        try:
            story()
        except AssertionError:
            found.append(story.__name__)
    assert found, "every story was still true"
