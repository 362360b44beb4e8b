from __future__ import annotations

from typing import NamedTuple

from tenure.beat.board import BeatBoard
from tenure.beat.record import Brake, Occupant, Phase
from tenure.engines.contracts import Ticket
from tenure.work.attempt_watch import Act, AttemptWatch
from tenure.work.wait_brake import WaitBrake
from tenure.work.watched_attempt import WatchedAttempt


class Word(NamedTuple):
    name: str = "s3"
    canaries: int = 0
    released: int = 0


def waiting(index: int, name: str = "s3") -> WatchedAttempt:
    record = BeatBoard.private(1).records[0]
    record.index = index
    ticket = Ticket(id="m", receipt_handle="r", delivery_count=1, enqueued_at=0.0, lease_until=1e9)
    occupant = Occupant(ticket=ticket, job="j", workflow="w", attempt=1, queue="q", stall_s=10.0, waits_on=name)
    record.occupy(Phase.RUNNING, occupant, 0.0)
    return WatchedAttempt(record, AttemptWatch(occupant, 20.0, 5.0, lease_until=1e9), record.serial)


def look(brake: WaitBrake, attempts: list[WatchedAttempt], now: float) -> list[Brake]:
    for one in attempts:
        brake.look(one, one.record.read(), now)
    return [one.record.brake for one in attempts]


def test_the_clock_of_an_attempt_that_waits_for_what_is_down_stands_still_and_starts_anew_after() -> None:
    brake, one = WaitBrake(), waiting(0)
    brake.tell([Word()])
    for now in (5.0, 500.0):
        look(brake, [one], now)
        assert one.watch.step(one.record.read(), now, now).act is not Act.CANCEL
    brake.tell([])
    look(brake, [one], 501.0)
    assert one.watch.step(one.record.read(), 509.0, 509.0).act is not Act.CANCEL
    assert one.watch.step(one.record.read(), 511.0, 511.0).act is Act.CANCEL, "it still hangs"


def test_one_that_waits_for_something_else_is_found() -> None:
    brake, one = WaitBrake(), waiting(0, "gcs")
    brake.tell([Word()])
    assert look(brake, [one], 11.0) == [Brake.NONE]
    assert one.watch.step(one.record.read(), 11.0, 11.0).act is Act.CANCEL


def test_so_many_canaries_try_at_a_time_and_another_takes_the_place_of_one_that_is_gone() -> None:
    brake, attempts = WaitBrake(), [waiting(index) for index in range(3)]
    brake.tell([Word()])
    assert look(brake, attempts, 1.0) == [Brake.HELD] * 3
    brake.tell([Word(canaries=1)])
    assert look(brake, attempts, 2.0) == [Brake.LET_GO, Brake.HELD, Brake.HELD]
    assert look(brake, attempts, 3.0) == [Brake.LET_GO, Brake.HELD, Brake.HELD]
    assert look(brake, attempts[1:], 6.0) == [Brake.LET_GO, Brake.HELD]


def test_a_release_counts_every_attempt_once_however_long_it_lasts() -> None:
    brake, attempts = WaitBrake(), [waiting(index) for index in range(3)]
    brake.tell([Word(released=2)])
    assert look(brake, attempts, 1.0) == [Brake.LET_GO, Brake.LET_GO, Brake.HELD]
    assert look(brake, attempts, 60.0) == [Brake.LET_GO, Brake.LET_GO, Brake.HELD]
    brake.tell([Word(released=3)])
    assert look(brake, attempts, 61.0) == [Brake.LET_GO] * 3


def test_an_attempt_that_takes_the_record_next_is_not_held() -> None:
    brake, one = WaitBrake(), waiting(0)
    brake.tell([Word()])
    look(brake, [one], 1.0)
    one.record.occupy(Phase.RUNNING, one.watch.occupant, 2.0)
    assert one.record.brake is Brake.NONE
