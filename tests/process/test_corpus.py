"""The short version of the hang corpus: 20 hangs and 20 healthy jobs, in real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus.__main__ import good
from corpus.case import all_cases
from corpus.job import Witness
from corpus.measure import judge, run
from corpus.runtimes.runtime import Known
from corpus.runtimes.tenure_runtime import TenureRuntime
from tests.patience import PATIENCE_S


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_every_hang_of_the_short_corpus_is_found_and_named_and_no_healthy_job_is_ended(tmp_path: Path) -> None:
    cases = [case for case in all_cases().values() if case.short]
    assert {kind: sum(case.kind == kind for case in cases) for kind in ("hang", "healthy")} == {
        "hang": 20,
        "healthy": 20,
    }
    # Three times the thresholds, and no bar on the time until one is found: other tests have the machine as well. `make corpus` has the bar.
    outcomes = run(TenureRuntime(patience=3.0), cases, tmp_path, after_s=PATIENCE_S)
    assert not [one for one in outcomes if one.kind == "hang" and not (one.named and one.recovered)]
    assert not [one for one in outcomes if one.killed]
    assert not sum(one.duplicates for one in outcomes)


def test_a_runtime_that_does_nothing_is_judged_to_have_missed_the_hang(tmp_path: Path) -> None:
    case, witness = all_cases()["lock_order"], Witness(tmp_path, "lock_order")
    witness.begin()
    witness.say("hang", attempt=1)
    assert not good(judge(case, witness.lines(), Known()))


def test_an_attempt_beside_a_hung_one_counts_as_run_twice(tmp_path: Path) -> None:
    case, witness = all_cases()["lock_order"], Witness(tmp_path, "lock_order")
    witness.begin()
    witness.say("hang", attempt=1)
    witness.begin()
    assert judge(case, witness.lines(), Known()).duplicates == 1


def test_a_healthy_job_that_failed_counts_as_killed_also_when_a_later_attempt_completed(tmp_path: Path) -> None:
    case, witness = all_cases()["bursts"], Witness(tmp_path, "bursts")
    witness.say("error", attempt=witness.begin(), error="ended from outside")
    witness.say("end", attempt=witness.begin())
    assert judge(case, witness.lines(), Known()).killed
