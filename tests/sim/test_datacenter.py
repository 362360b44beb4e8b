"""Whole datacenters of real managers and workers: what was accepted ends, once, in time, whatever fails."""

from __future__ import annotations

import pytest
from tests.sim import broken_datacenter
from tests.soak import sized
from tests.worlds.datacenter.clients import BADLY, WELL
from tests.worlds.datacenter.failover import Failover, Vanishing
from tests.worlds.datacenter.scenario import Datacenter, Paged
from tests.worlds.datacenter.steered import Steered
from tests.worlds.patching import first_failure

from tenure.jobs.decisions import Rule
from tenure.jobs.states import MADE_WAY, AttemptCause, JobState
from tenure.sim import Scenario, run_seeds, story

CHUNK = 100
CHUNKS = sized("times 100 schedules of one datacenter", short=2, long=600)
"""Each chunk sees everything that can happen (`EXPECTED`); all but the rarest of the forgotten rules are found within one (`RULES`)."""
RARE = {AttemptCause.LOST_LEASE, AttemptCause.DEAD_LETTER}
STEERED = {AttemptCause.PAUSED, AttemptCause.MOVED}
EXPECTED = (
    *(f"play {play}" for play in {*WELL, *BADLY}),
    *(f"JobEnded {state}" for state in JobState if state.terminal),
    *(f"AttemptFailed {cause}" for cause in set(AttemptCause) - RARE - MADE_WAY),
    *(f"ResultRefused {rule}" for rule in (Rule.JOB_ENDED, Rule.STALE_ATTEMPT)),
    *("WorkerEvicted", "ExtensionGranted", "ExtensionDenied", "TombstoneSet", "JobArchived", "JobCleaned"),
)


def test_the_first_seeds_keep_every_promise() -> None:
    report = run_seeds(Datacenter, range(15))
    report.require_ok()
    assert report.faults > 20


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_hundreds_of_seeds_keep_every_promise_and_see_everything_that_can_happen(chunk: int) -> None:
    report = run_seeds(Datacenter, range(chunk * CHUNK, (chunk + 1) * CHUNK))
    print(report.summary())
    report.require_ok()
    assert report.runs == CHUNK
    assert not [what for what in EXPECTED if not report.tally[what]]
    assert report.tally["LeaderElected"] > CHUNK * 1.5
    assert report.tally["JobSubmitted"] > CHUNK * 6


@pytest.mark.slow
def test_a_state_in_pages_is_the_fold_of_the_journal_whatever_fails() -> None:
    report = run_seeds(Paged, range(sized("worlds with their state in pages", short=40, long=2_000)))
    report.require_ok()
    assert report.tally["saved in pages"] > 100


@pytest.mark.slow
def test_jobs_that_are_paused_moved_and_retimed_while_things_fail_keep_every_promise() -> None:
    report = run_seeds(Steered, range(sized("worlds with somebody who steers", short=25, long=1_000)))
    report.require_ok()
    seen = [f"AttemptFailed {cause}" for cause in STEERED]
    assert not [
        what for what in (*seen, "JobPaused", "JobResumed", "JobRetimed", "MoveAsked") if not report.tally[what]
    ]


def test_a_seed_that_once_broke_a_promise_keeps_it() -> None:
    """A standby that was elected while it looked for a job in the archive said that there is none. Seeds mean other runs when
    anything is drawn anew; the promise is checked in each."""
    run_seeds(Datacenter, [1877]).require_ok()


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [Failover, Vanishing])
def test_after_the_leaders_death_a_submission_is_accepted_within_two_terms(scenario: type[Failover]) -> None:
    run_seeds(scenario, range(sized("deaths of a leader, of two kinds", short=30, long=600))).require_ok()


# What the observer says of it, and the most seeds that finding it may take.
RULES: dict[str, tuple[str | tuple[str, ...], int]] = {
    "AnswersEarly": ("and the journal does not", 20),
    "ReadsAhead": ("the journal does not know its job", 40),
    "TrustsOldAttempts": ("was made by attempt", 40),
    "SnapshotsAhead": ("is not the fold up to there", 200),
    "EvictsByWord": ("evicted", 400),
    # Never, or too late: whichever seed comes first.
    "ForgetsDeadlines": (("has not ended", "after its deadline"), 120),
    "DoesNotDrain": ("had come before its deadline", 80),
    # One schedule in some hundreds has a leader die with results.
    "DoesNotWaitForTheDead": ("had come before its deadline", 500),
    "AcknowledgesEarly": ("had come before its deadline", 60),
    "ForgetsToRevoke": ("was claimed after it had been cleaned up", 60),
    # Without a key there is no generation, and a leader refuses results whose fence is none that it gave out (0333).
    "SendsWithoutKeys": (("have one fence", "had come before its deadline"), 20),
    "DoesNotResend": ("was never sent", 60),
    "GrantsForEver": ("in one series", 40),
    "TellsTimeByTheWall": ("deadline", 120),
    "CancelsByWord": ("was answered, and the journal does not show it", 20),
    "KnowsBetter": ("and then said to be unknown", 120),
    "ObeysEverybody": ("and had heard of", 20),
    "KeepsItsLease": ("was given to somebody else", 20),
    "TakesEverything": ("which excludes it", 120),
    # Itself, or what comes of it (the checksum names the sequence that its writer expected): whichever seed comes first.
    "EpochBlind": (("wrote under epoch", "cannot go from", "has no right checksum"), 20),
}


KNOWN = {
    "SnapshotsAhead": (11, 28),
    "EvictsByWord": (208, 249, 356),
    "TrustsOldAttempts": (12, 17),
    "ForgetsDeadlines": (10, 18),
    "DoesNotDrain": (12, 13),
    "DoesNotWaitForTheDead": (283, 489, 550),
    "AcknowledgesEarly": (13, 14),
    "ForgetsToRevoke": (6, 7),
    "DoesNotResend": (1, 16),
    "GrantsForEver": (2, 3),
    "KnowsBetter": (2, 16),
    "TakesEverything": (3, 6),
}
"""Seeds at which a rule was found that the first seed does not show, by a search over all of its seeds. They are tried first."""


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_a_forgotten_rule_is_found_within_few_seeds(name: str) -> None:
    scenario: type[Scenario] = getattr(broken_datacenter, name)
    promises, seeds = RULES[name]
    found = first_failure(scenario, KNOWN.get(name, ()), seeds)
    assert found is not None, f"{name} was not found in {seeds} seeds"
    assert any(promise in found.failure for promise in ([promises] if isinstance(promises, str) else promises))
    assert f"tests/sim/broken_datacenter.py:{name} --seed {found.seed}" in story(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Outages", "Skews", "LateWords"])
def test_the_schedules_made_for_a_forgotten_rule_are_harmless_when_it_is_kept(name: str) -> None:
    run_seeds(getattr(broken_datacenter, name), range(10)).require_ok()
