from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import LimitError
from tenure.work.retry import Retry


def test_the_pause_doubles_up_to_its_limit() -> None:
    retry = Retry(base_s=1, factor=2, most_s=10, jitter=0)
    assert [retry.delay_s(n, Random(1)) for n in (1, 2, 3, 4, 5, 1_000_000)] == [1, 2, 4, 8, 10, 10]


@given(failures=st.integers(1, 10_000), seed=st.integers(), jitter=st.floats(0, 1))
def test_jitter_never_makes_it_negative_and_stays_in_its_band(failures: int, seed: int, jitter: float) -> None:
    delay = Retry(base_s=1, most_s=60, jitter=jitter).delay_s(failures, Random(seed))
    plain = min(60.0, 2.0 ** min(failures - 1, 64))
    assert plain * (1 - jitter) - 1e-9 <= delay <= plain * (1 + jitter) + 1e-9


@pytest.mark.parametrize(
    "options", [{"base_s": -1}, {"base_s": 500}, {"factor": 0.5}, {"jitter": 2}, {"most_s": 10**6}]
)
def test_policies_that_make_no_sense_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(LimitError):
        Retry(**options)
