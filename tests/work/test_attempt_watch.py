from __future__ import annotations

from typing import Any

import pytest

from tenure.beat.record import BeatReading, Occupant, Phase
from tenure.engines.contracts import Ticket
from tenure.work.attempt_watch import Act, AttemptWatch
from tenure.work.delivery import CancelCode

TICKET = Ticket(id="m", receipt_handle="r", delivery_count=1, enqueued_at=0, lease_until=10.0)


def watch(**changes: object) -> AttemptWatch:
    fields = {"ticket": TICKET, "job": "j", "workflow": "w", "attempt": 1, "queue": "q", "stall_s": 30.0, **changes}
    return AttemptWatch(Occupant(**fields), extend_every_s=20.0, grace_s=5.0, lease_until=10.0)  # type: ignore[arg-type]


def reading(
    phase: Phase = Phase.RUNNING, beat_at: float = 0.0, steps: int = 1, silent_until: float = 0.0, **shown: Any
) -> BeatReading:
    return BeatReading(phase, beat_at, steps, 0.0, silent_until, 1, False, 1, None, **shown)


def extend(found: AttemptWatch, look: BeatReading, now: float, lease: float = 60.0) -> None:
    assert found.step(look, now, now).act is Act.EXTEND
    found.extending(look, now)
    found.extended(now + lease)


def test_running_work_is_extended_at_once_and_then_once_per_interval_while_it_beats() -> None:
    found = watch()
    extend(found, reading(steps=1), 0.1)
    assert found.step(reading(beat_at=5, steps=9), 10, 10).act is Act.NOTHING
    extend(found, reading(beat_at=20, steps=20), 20.2)
    assert found.lease_until == 80.2


def test_without_a_new_beat_nothing_is_extended() -> None:
    found = watch()
    extend(found, reading(steps=1), 0.1)
    assert found.step(reading(beat_at=0, steps=1), 25, 25).act is Act.NOTHING


def test_work_that_is_quieter_than_its_lease_keeps_it_until_its_stall_threshold_and_no_longer() -> None:
    found = watch(stall_s=100.0)
    extend(found, reading(steps=1), 0.1)
    assert found.step(reading(), 39, 39).act is Act.NOTHING
    extend(found, reading(), 41)
    assert found.step(reading(), 75, 75).act is Act.NOTHING
    extend(found, reading(), 82)
    verdict = found.step(reading(), 100.1, 100.1)
    assert (verdict.act, verdict.code) == (Act.CANCEL, CancelCode.STALL)


def test_a_lease_that_outlasts_the_stall_threshold_is_not_extended_without_a_beat() -> None:
    found = watch(stall_s=50.0)
    extend(found, reading(steps=1), 0.1)
    assert found.step(reading(), 49.9, 49.9).act is Act.NOTHING


def test_a_claim_that_has_not_started_is_neither_extended_nor_stalled_and_ends_with_its_short_lease() -> None:
    found = watch(stall_s=1.0)
    assert found.step(reading(Phase.CLAIMED), 9.9, 9.9).act is Act.NOTHING
    verdict = found.step(reading(Phase.CLAIMED), 10.0, 10.0)
    assert (verdict.act, verdict.code) == (Act.CANCEL, CancelCode.LEASE_LOST)
    assert found.step(reading(Phase.CLAIMED), 15.0, 15.0).act is Act.KILL


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.EMPTY])
def test_no_phase_lasts_for_ever_although_the_engine_grants_every_extension(phase: Phase) -> None:
    found = watch()
    for tick in range(10_000):
        now = tick / 10
        verdict = found.step(reading(phase, beat_at=0.0), now, now)
        if verdict.act is Act.KILL:
            return
        if verdict.act is Act.EXTEND:
            found.extending(reading(phase), now)
            found.extended(now + 60)
    pytest.fail(f"{phase!r} has no end")


@pytest.mark.parametrize("code", [CancelCode.STALL, CancelCode.TIMEOUT, CancelCode.CANCEL, CancelCode.DRAIN])
def test_a_lease_is_held_through_the_grace_of_a_verdict(code: CancelCode) -> None:
    lease, grace = 5.0, 12.0
    found = AttemptWatch(watch().occupant, extend_every_s=lease / 3, grace_s=grace, lease_until=lease)
    found.cancel(code, "told to", 4.0)
    now, extensions = 4.0, 0
    while (verdict := found.step(reading(), now, now)).act is not Act.KILL:
        if verdict.act is Act.EXTEND:
            extensions += 1
            found.extending(reading(), now)
            found.extended(now + lease)
        assert now < found.lease_until
        now += 0.1
    assert now >= 4.0 + grace
    assert found.lease_until - now > lease / 3 - 0.1  # what the settlement of the verdict has
    assert extensions <= 2 + grace / (lease / 3)


def test_a_lost_lease_is_not_asked_for_again() -> None:
    found = watch()
    assert found.step(reading(), 10.0, 10.0).code is CancelCode.LEASE_LOST
    assert found.step(reading(beat_at=11, steps=5), 12.0, 12.0).act is Act.NOTHING
    slept = watch()
    slept.cancel(CancelCode.STALL, "no beat", 1.0)
    assert slept.step(reading(), 2.0, 3_600.0).act is Act.NOTHING  # the machine slept in the grace


def test_silence_past_the_stall_threshold_is_cancelled_then_killed_after_the_grace() -> None:
    found = watch()
    extend(found, reading(steps=1), 0.1)
    verdict = found.step(reading(beat_at=0.0), 30.1, 30.1)
    assert (verdict.act, verdict.code) == (Act.CANCEL, CancelCode.STALL)
    assert "no beat for 30.1 s, allowed are 30 s" in verdict.reason
    assert found.step(reading(beat_at=0.0), 35.0, 35.0).act is Act.NOTHING
    assert found.step(reading(beat_at=0.0), 35.2, 35.2).act is Act.KILL


def test_a_beat_after_the_cancel_does_not_save_it() -> None:
    found = watch()
    extend(found, reading(steps=1), 0.1)
    found.step(reading(beat_at=0.0), 31, 31)
    assert found.step(reading(beat_at=32, steps=5), 36.1, 36.1).act is Act.KILL


def test_a_declared_silence_holds_the_stall_clock_and_keeps_the_lease_until_its_bound() -> None:
    found = watch()
    extend(found, reading(steps=1), 0.1)
    quiet = reading(beat_at=0.0, steps=1, silent_until=100.0)
    extend(found, quiet, 40.0)
    extend(found, quiet, 99.0)
    assert found.step(quiet, 125.0, 125.0).act is Act.NOTHING
    verdict = found.step(quiet, 130.5, 130.5)
    assert (verdict.act, verdict.code) == (Act.CANCEL, CancelCode.STALL)


def test_a_lease_that_ran_out_by_our_own_clock_is_lost_even_if_the_engine_says_nothing() -> None:
    verdict = watch().step(reading(), 10.0, 10.0)
    assert (verdict.act, verdict.code) == (Act.CANCEL, CancelCode.LEASE_LOST)


def test_a_machine_that_slept_has_lost_its_lease_but_has_not_stalled() -> None:
    found = watch()
    extend(found, reading(steps=1), 0.1)
    verdict = found.step(reading(beat_at=1.0, steps=2), 2.0, 3_600.0)
    assert verdict.code is CancelCode.LEASE_LOST


def test_the_deadline_of_an_attempt_is_kept() -> None:
    found = watch(deadline=25.0, started_at=5.0)
    extend(found, reading(steps=1), 0.1)
    verdict = found.step(reading(beat_at=24.9, steps=9), 25.0, 25.0)
    assert (verdict.act, verdict.code) == (Act.CANCEL, CancelCode.TIMEOUT)
    assert "ran for 20.0 s" in verdict.reason


def test_an_outcome_that_is_being_written_keeps_its_lease_and_cannot_stall() -> None:
    found = watch()
    extend(found, reading(steps=1), 0.1)
    assert found.step(reading(Phase.SETTLING, steps=1), 45.0, 45.0).act is Act.NOTHING
    extend(found, reading(Phase.SETTLING, steps=1), 55.0)


def test_an_outcome_that_is_not_written_within_its_bound_ends_the_slot_and_the_cause_is_told() -> None:
    found = watch()
    extend(found, reading(steps=1), 0.1)
    assert found.step(reading(Phase.SETTLING), 20.0, 20.0).act is Act.NOTHING
    extend(found, reading(Phase.SETTLING), 51.0)
    assert found.step(reading(Phase.SETTLING), 79.9, 79.9).act is Act.NOTHING
    verdict = found.step(reading(Phase.SETTLING), 80.0, 80.0)
    assert (verdict.act, verdict.code) == (Act.CANCEL, CancelCode.UNSETTLED)
    assert "its outcome could not be handed over" in verdict.reason
    assert found.step(reading(Phase.SETTLING), 85.1, 85.1).act is Act.KILL


def test_an_engine_that_did_not_answer_is_asked_again_soon() -> None:
    found = watch()
    first = reading(steps=1)
    assert found.step(first, 0.1, 0.1).act is Act.EXTEND
    found.extending(first, 0.1)
    assert found.step(first, 0.5, 0.5).act is Act.NOTHING
    found.extension_failed(0.5, retry_in_s=1.0)
    assert found.step(first, 1.0, 1.0).act is Act.NOTHING
    assert found.step(first, 1.6, 1.6).act is Act.EXTEND


def test_an_answer_that_comes_late_never_shortens_the_lease() -> None:
    found = watch()
    found.extended(100.0)
    found.extended(50.0)
    assert found.lease_until == 100.0


def held(**changes: object) -> AttemptWatch:
    found = watch(**changes)
    found.lease_until = 1e9
    return found


def spin(found: AttemptWatch, seconds: int, **shown: Any) -> tuple[float, str]:
    """Beats once a second; returns when it was asked to end, and why."""
    for now in range(seconds):
        verdict = found.step(reading(beat_at=now, steps=now + 1, **shown), now, now)
        if verdict.act is Act.CANCEL:
            assert verdict.code is CancelCode.STALL
            return now, verdict.reason
    return 0.0, ""


def test_work_that_counts_and_then_only_beats_is_ended_at_its_stuck_threshold_with_the_evidence() -> None:
    ended, reason = spin(held(stall_s=300.0), 700, mark=3, items=7, total=20)
    assert ended == 600
    assert reason.startswith("spinning: 600 beats in 10 min, item 7 of 20 throughout")


def test_a_chosen_stuck_threshold_wins_and_a_derived_one_is_two_minutes_at_least() -> None:
    assert spin(held(stuck_s=40.0), 700, mark=3)[0] == 40
    assert spin(held(stall_s=5.0), 700, mark=3)[0] == 120


def test_work_that_only_beats_is_judged_by_its_beats_unless_its_author_says_otherwise() -> None:
    assert spin(held(), 700, mark=0) == (0.0, "")
    assert spin(held(), 700, mark=4) == (0.0, "")  # a log line, or a loop that came to its end
    assert spin(held(proof="progress"), 700, mark=0)[0] == 120
    assert spin(held(proof="beat"), 700, mark=3) == (0.0, "")


def test_declared_polling_and_silences_hold_the_clock_of_spinning_work_and_do_not_set_it_back() -> None:
    found = held()
    for now in range(100):
        assert found.step(reading(beat_at=now, steps=now + 1, mark=3), now, now).act is not Act.CANCEL
    for now in range(100, 5_000):
        shown = reading(beat_at=now, steps=now + 1, mark=3, polling_until=5_000.0)
        assert found.step(shown, now, now).act is not Act.CANCEL
    ended = next(
        now
        for now in range(5_000, 6_000)
        if found.step(reading(beat_at=now, steps=now + 1, mark=3), now, now).act is Act.CANCEL
    )
    assert 5_015 <= ended <= 5_025  # a hundred seconds and twenty are the threshold


def test_a_stall_says_that_other_threads_beat() -> None:
    found = held(stall_s=2.0)
    found.step(reading(steps=1), 0, 0)
    verdict = found.step(reading(steps=1, others=57), 2.5, 2.5)
    assert "no beat for 2.5 s" in verdict.reason
    assert "other threads beat 57 times, which ctx.thread() would count" in verdict.reason
