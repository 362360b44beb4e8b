"""`make soak` plays the chaos suites for hours: how rounds are counted, and when they end."""

from __future__ import annotations

import pytest
from tools.chaos_rounds import CHAOS, ROOT, Round, read_round, rounds

from tools import chaos_rounds

GREEN = Round(60.0, {"passed": 3}, (), "3 passed in 60.00s\n")


def test_rounds_are_played_until_the_time_has_passed_and_the_last_one_to_its_end() -> None:
    now = [0.0]

    def play() -> Round:
        now[0] += 60.0
        return GREEN

    assert len(list(rounds(150.0, play, lambda: now[0]))) == 3
    assert now[0] == 180.0


def test_one_round_is_played_even_where_it_takes_longer_than_the_time() -> None:
    now = [0.0]

    def play() -> Round:
        now[0] += 600.0
        return GREEN

    assert len(list(rounds(1.0, play, lambda: now[0]))) == 1


def test_a_round_names_the_tests_that_failed() -> None:
    said = "F.\nFAILED tests/engines/test_chaos.py::test_it[Valkey-frozen] - AssertionError\n1 failed, 40 passed, 2 skipped in 61.10s (0:01:01)\n"
    one = read_round(61.0, said)
    assert not one.ok
    assert one.failed == ("tests/engines/test_chaos.py::test_it[Valkey-frozen]",)
    assert one.counts == {"failed": 1, "passed": 40, "skipped": 2}


@pytest.mark.parametrize(
    "said", ["", "no tests ran in 0.01s\n", "1 passed, 1 error in 2.00s\n", "INTERNALERROR> boom\n"]
)
def test_a_round_that_proved_nothing_has_failed(said: str) -> None:
    assert not read_round(1.0, said).ok


def test_the_files_of_a_round_exist() -> None:
    assert [path for path in CHAOS if not (ROOT / path).is_file()] == []


def test_a_failed_round_fails_the_run_and_the_later_rounds_are_played(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "FAILED tests/a.py::test_b - AssertionError\n1 failed, 2 passed in 1.00s\n"
    outcomes = [read_round(1.0, said), GREEN, GREEN]
    monkeypatch.setattr(chaos_rounds, "rounds", lambda seconds, play, clock: iter(outcomes))
    assert chaos_rounds.main(["--hours", "0.5"]) == 1
    printed = capsys.readouterr().out
    assert "3 rounds, 1 failed rounds" in printed
    assert "failed 1 times: tests/a.py::test_b" in printed


@pytest.mark.parametrize("hours", ["0", "-1", "nan", "1e9"])
def test_hours_that_cannot_be_are_refused(hours: str) -> None:
    with pytest.raises(SystemExit):
        chaos_rounds.main(["--hours", hours])
