from __future__ import annotations

from random import Random

from tenure.engines.backoff import Backoff


def test_delays_double_up_to_a_ceiling_and_are_jittered() -> None:
    backoff = Backoff(Random(1), first_s=0.1, most_s=1.0)
    delays = [backoff.next() for _ in range(8)]
    for delay, ceiling in zip(delays, [0.1, 0.2, 0.4, 0.8, 1, 1, 1, 1], strict=True):
        assert ceiling / 2 <= delay <= ceiling
    assert len(set(delays)) == 8


def test_an_answer_starts_it_again_from_the_shortest() -> None:
    backoff = Backoff(Random(1), first_s=0.1, most_s=60.0)
    for _ in range(5):
        backoff.next()
    backoff.reset()
    assert backoff.next() <= 0.1


def test_a_very_long_outage_does_not_overflow() -> None:
    backoff = Backoff(Random(1), most_s=5.0)
    assert max(backoff.next() for _ in range(5_000)) <= 5.0
