from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.changed import changed

from tenure.beat.proof import NoveltyMark, Proof, ProofClock, ShownProof, place_of, stuck_threshold
from tenure.errors import ConfigurationError


def test_a_higher_count_is_news_and_the_same_or_a_lower_one_is_not() -> None:
    mark = NoveltyMark()
    assert [mark.items(n, 20) for n in (1, 2, 2, 7, 7, 3, 7, 8)] == [True, True, False, True, False, False, False, True]


def test_a_count_that_fails_and_starts_over_shows_nothing_new() -> None:
    mark = NoveltyMark()
    for n in range(1, 8):
        mark.items(n, 20)
    assert not any(mark.items(n, 20) for _ in range(5) for n in range(1, 8))
    assert mark.bound


@pytest.mark.parametrize("last", [100, 99])
def test_a_count_that_was_finished_may_begin_anew(last: int) -> None:
    mark = NoveltyMark()
    for _ in range(3):
        assert mark.items(1, 100)
        assert mark.items(last, 100)


def test_a_count_to_another_total_is_another_count() -> None:
    mark = NoveltyMark()
    mark.items(70, 100)
    assert mark.items(1, 40)


def test_a_loop_that_begins_counts_anew_wherever_the_last_one_ended() -> None:
    mark = NoveltyMark()
    mark.items(5, 10)
    mark.begin_count()
    assert mark.items(1, 10)


def test_a_finished_count_asks_for_nothing_more_and_an_unknown_total_always_does() -> None:
    mark = NoveltyMark()
    mark.items(20, 20)
    assert not mark.bound
    mark.begin_count()
    mark.items(3, 0)
    assert mark.bound


def test_a_higher_fraction_is_news_and_one_that_was_almost_whole_may_begin_anew() -> None:
    mark = NoveltyMark()
    assert [mark.fraction(f) for f in (0.0, 0.1, 0.1, 0.05, 0.5, 0.99, 0.1)] == [
        *(False, True, False, False, True, True, True)
    ]
    mark.fraction(1.0)
    assert not mark.bound


def test_output_is_news_and_binds_to_nothing() -> None:
    mark = NoveltyMark()
    mark.output()
    assert (mark.count, mark.bound) == (1, False)
    mark.show(binds=True)
    mark.output()
    assert (mark.count, mark.bound) == (3, True)


@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from([0, 10, 30]))))
def test_the_mark_only_grows(counts: list[tuple[int, int]]) -> None:
    mark, before = NoveltyMark(), 0
    for completed, total in counts:
        news = mark.items(completed, total)
        assert mark.count == before + news
        before = mark.count


def test_silent_work_is_not_spinning_whatever_it_counted() -> None:
    clock = ProofClock()
    assert all(clock.look(ShownProof(5, 3), now, stuck_s=10) is None for now in range(100))


def test_news_start_the_clock_anew() -> None:
    clock = ProofClock()
    for now in range(100):
        assert clock.look(ShownProof(now, now // 9 << 1 | 1), now, stuck_s=10) is None


def test_the_evidence_counts_beats_and_time_since_the_last_news() -> None:
    clock = ProofClock()
    clock.look(ShownProof(100, 3), 50, stuck_s=10)
    assert clock.look(ShownProof(112, 3), 59.9, stuck_s=10) is None
    assert clock.look(ShownProof(120, 3), 60, stuck_s=10) == (20, 10)


def test_places_in_words_and_thresholds() -> None:
    assert place_of(7, 20, 0.35) == "item 7 of 20"
    assert place_of(7, 0, 0.35) == "item 7"
    assert place_of(0, 0, 0.35) == "35% done"
    assert place_of(0, 0, 0.0) == "nothing new"
    assert (stuck_threshold(2), stuck_threshold(300), stuck_threshold(300, 5)) == (120, 600, 5)


def test_a_proof_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="proof is 'hope'"):
        Proof("hope")


def test_an_excused_time_holds_the_clock_and_does_not_set_it_back() -> None:
    clock = ProofClock()
    clock.look(ShownProof(0, 3), 0, stuck_s=10)
    assert clock.look(ShownProof(6, 3), 6, stuck_s=10) is None
    for now in range(7, 100):
        assert clock.look(ShownProof(now, 3, excused=True), now, stuck_s=10) is None
    assert clock.look(ShownProof(102, 3), 102, stuck_s=10) is None
    assert clock.look(ShownProof(104, 3), 104, stuck_s=10) is not None


def test_the_author_of_the_work_may_fix_the_proof() -> None:
    for proof, mark, found in (
        ("beat", 3, False),
        ("progress", 0, True),
        ("", 3, True),
        ("", 0, False),
        ("", 4, False),
    ):
        clock = ProofClock()
        clock.look(ShownProof(0, mark), 0, stuck_s=10, proof=proof)
        assert (clock.look(ShownProof(9, mark), 10, stuck_s=10, proof=proof) is not None) == found


def _every_count_is_news(self: NoveltyMark, completed: int, total: int) -> bool:
    self.show(binds=True)
    return True


def _every_fraction_is_news(self: NoveltyMark, fraction: float) -> bool:
    self.show(binds=fraction < 1.0)
    return True


def _output_binds(self: NoveltyMark) -> None:
    self.show(binds=True)


def _show_binds_always(self: NoveltyMark, *, binds: bool) -> None:
    self.count, self.bound = self.count + 1, True


def _look(change: Callable[[ShownProof, str], tuple[ShownProof, str]]) -> Any:
    real = ProofClock.look

    def look(self: ProofClock, shown: ShownProof, now: float, *, stuck_s: float, proof: str = "") -> Any:
        shown, proof = change(shown, proof)
        return real(self, shown, now, stuck_s=stuck_s, proof=proof)

    return look


_numbers = itertools.count()
MUTANTS: dict[str, tuple[type, str, Any]] = {
    "every count is news": (NoveltyMark, "items", _every_count_is_news),
    "every fraction is news": (NoveltyMark, "fraction", _every_fraction_is_news),
    "a finished count may not begin anew": (NoveltyMark, "_finished", staticmethod(lambda items, total: False)),
    "every count may begin anew": (NoveltyMark, "_finished", staticmethod(lambda items, total: True)),
    "output binds": (NoveltyMark, "output", _output_binds),
    "a finished count asks for more": (NoveltyMark, "show", _show_binds_always),
    "the next loop goes on with the count of the last": (NoveltyMark, "begin_count", lambda self: None),
    "nothing is excused": (ProofClock, "look", _look(lambda shown, proof: (changed(shown, excused=False), proof))),
    "everything is excused": (ProofClock, "look", _look(lambda shown, proof: (changed(shown, excused=True), proof))),
    "beats only are spinning": (ProofClock, "look", _look(lambda shown, proof: (shown, proof or "progress"))),
    "nothing has to go on": (ProofClock, "look", _look(lambda shown, proof: (shown, proof or "beat"))),
    "the author is not heard": (ProofClock, "look", _look(lambda shown, proof: (shown, ""))),
    "silence spins": (
        ProofClock,
        "look",
        _look(lambda shown, proof: (changed(shown, beats=next(_numbers)), proof)),
    ),
}
RULES: tuple[Callable[[], None], ...] = (
    test_a_higher_count_is_news_and_the_same_or_a_lower_one_is_not,
    test_a_count_that_fails_and_starts_over_shows_nothing_new,
    lambda: test_a_count_that_was_finished_may_begin_anew(99),
    test_a_count_to_another_total_is_another_count,
    test_a_loop_that_begins_counts_anew_wherever_the_last_one_ended,
    test_a_finished_count_asks_for_nothing_more_and_an_unknown_total_always_does,
    test_a_higher_fraction_is_news_and_one_that_was_almost_whole_may_begin_anew,
    test_output_is_news_and_binds_to_nothing,
    test_silent_work_is_not_spinning_whatever_it_counted,
    test_news_start_the_clock_anew,
    test_the_evidence_counts_beats_and_time_since_the_last_news,
    test_an_excused_time_holds_the_clock_and_does_not_set_it_back,
    test_the_author_of_the_work_may_fix_the_proof,
)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_rule_that_was_changed_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTANTS[mutant])
    found = 0
    for rule in RULES:
        try:
            rule()
        except AssertionError:
            found += 1
    assert found, f"{mutant}: no test minds"
