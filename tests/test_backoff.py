from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.backoff import Backoff, Retry, delay_after
from tenure.errors import LimitError


def test_the_pause_doubles_up_to_its_limit() -> None:
    retry = Retry(delay=1, factor=2, max_delay=10, jitter=0)
    assert [retry.delay_s(n, 0.7) for n in (1, 2, 3, 4, 5, 1_000_000)] == [1, 2, 4, 8, 10, 10]


@given(failures=st.integers(1, 10_000), chance=st.floats(0, 1), jitter=st.floats(0, 1))
def test_jitter_shortens_the_pause_by_its_share_and_never_makes_it_longer(
    failures: int, chance: float, jitter: float
) -> None:
    delay = Retry(delay=1, max_delay=60, jitter=jitter).delay_s(failures, chance)
    plain = min(60.0, 2.0 ** min(failures - 1, 64))
    assert plain * (1 - jitter) - 1e-9 <= delay <= plain


def test_the_longest_pause_is_spread_as_the_others_are() -> None:
    random = Random(3)
    pauses = {delay_after(20, first_s=1, most_s=60, jitter=0.1, chance=random.random()) for _ in range(50)}
    assert len(pauses) == 50
    assert 54 <= min(pauses) < 56 < 59 < max(pauses) <= 60


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"max_attempts": 0}, "max_attempts of encode"),
        ({"delay": -1}, "delay"),
        ({"delay": 500}, "max_delay"),
        ({"max_delay": 10**6}, "max_delay"),
        ({"factor": 0.5}, "factor"),
        ({"jitter": 2}, "jitter"),
    ],
)
def test_policies_that_make_no_sense_are_refused_where_a_function_or_loop_declares_them(
    options: dict[str, Any], field: str
) -> None:
    with pytest.raises(LimitError, match=field):
        Retry(**options).checked("encode")


def test_a_policy_of_an_earlier_release_is_read_whatever_it_says() -> None:
    read = msgspec.json.decode(b'{"delay": 10, "max_delay": 5}', type=Retry)
    assert (read.delay, read.max_delay, read.max_attempts, read.factor, read.jitter) == (10, 5, 3, 2.0, 0.1)


def test_a_loop_waits_longer_after_each_failure_up_to_a_ceiling_and_out_of_step() -> None:
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
