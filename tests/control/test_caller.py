"""Whom a client asks, and when it gives up: the rules alone, without a network."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from tenure.clock import ManualClock
from tenure.control.caller import Ask, Directory, Pause, redirected
from tenure.control.messages.jobs import GetJob
from tenure.control.messages.wire import AskLeader, LeaderView, Problem, ProblemKind, Redirect
from tenure.errors import (
    ConfigurationError,
    NodeRefusedError,
    NodeUnavailableError,
    UnknownJobError,
    UntrustedPeerError,
)

A, B, C = "10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"
VIEW = LeaderView(leader="x", address=A, epoch=1, leads=True, seq=1)


class Play:
    """Drives one search with scripted nodes."""

    def __init__(
        self, nodes: dict[str, Any], *, addresses: str | Sequence[str] = (A, B), patience: float = 10, seed: int = 1
    ) -> None:
        self.clock = ManualClock()
        self.nodes, self.asked, self.times = nodes, [], []
        self.directory = Directory(addresses, patience_s=patience, random=Random(seed), monotonic=self.clock.monotonic)

    def run(self, request: Any = None) -> Any:
        request = request or AskLeader()
        search, heard = self.directory.search(request), None
        while True:
            try:
                step = search.send(heard)
            except StopIteration as end:
                return end.value
            heard = None
            if isinstance(step, Pause):
                self.clock.advance(step.seconds)
            else:
                assert isinstance(step, Ask)
                self.asked.append(step.address)
                self.times.append(self.clock.monotonic())
                found = self.nodes.get(step.address, NodeUnavailableError("no route"))
                heard = found.pop(0) if isinstance(found, list) else found


def test_the_next_address_is_asked_when_one_does_not_answer_and_kept_from_then_on() -> None:
    play = Play({B: VIEW})
    assert play.run() is VIEW
    assert play.asked == [A, B]
    play.run()
    assert play.asked[2:] == [B]


def test_a_redirect_is_followed_also_to_a_node_that_was_not_named() -> None:
    play = Play({A: Redirect(address=C, epoch=2), C: VIEW})
    assert play.run() is VIEW
    assert play.asked == [A, C]


def test_no_redirect_leads_from_tls_to_plain_http() -> None:
    """A token that is meant for TLS would be readable on the wire."""
    safe = "https://a:1"
    for origin, named, asked in [
        (safe, "http://evil:1", []),
        (A, "http://evil:1", []),
        (safe, "b:1", ["https://b:1"]),
        (safe, "https://b:1", ["https://b:1"]),
        ("http://a:1", "http://b:1", ["http://b:1"]),
    ]:
        play = Play(
            {origin: [Redirect(address=named, epoch=2), VIEW], "https://b:1": VIEW, "http://b:1": VIEW},
            addresses=[origin],
        )
        assert play.run() is VIEW
        assert [one for one in play.asked if one != origin] == asked
        assert redirected(origin, named) == (asked[0] if asked else "")


def test_a_problem_that_passes_is_asked_again_and_one_that_stays_is_raised() -> None:
    nobody = Problem(kind=ProblemKind.UNAVAILABLE, fact="nobody leads now", retryable=True)
    play = Play({A: [nobody, nobody, VIEW], B: [nobody, nobody]})
    assert play.run() is VIEW
    with pytest.raises(NodeRefusedError, match="wrong"):
        Play({A: Problem(kind=ProblemKind.INVALID, fact="wrong")}).run()
    with pytest.raises(UnknownJobError):
        Play({A: Problem(kind=ProblemKind.UNKNOWN, fact="there is no job 'j'")}).run(GetJob(job_id="j"))


def test_patience_ends_with_an_error_that_tells_what_each_address_said() -> None:
    with pytest.raises(NodeUnavailableError) as ended:
        Play({}).run()
    assert A in str(ended.value)
    assert B in str(ended.value)
    assert "no route" in str(ended.value)


def shed(seconds: float) -> Problem:
    return Problem(kind=ProblemKind.UNAVAILABLE, fact="the gate is busy", retryable=True, retry_after_s=seconds)


def test_a_node_that_asks_to_be_left_alone_is_left_alone_for_so_long_and_others_are_asked_meanwhile() -> None:
    play = Play({A: [shed(4.0), VIEW], B: [shed(2.0), shed(30.0)]}, patience=60)
    begun = play.clock.monotonic()
    assert play.run() is VIEW
    assert play.asked == [A, B, B, A]
    first, second = play.times[2] - begun, play.times[3] - begun
    assert 2.0 <= first <= 2.0 * 1.25 + 0.1
    assert 4.0 <= second <= 4.0 * 1.25 + 1.0


def test_those_who_were_turned_away_together_do_not_come_back_together() -> None:
    rests = []
    for seed in range(20):
        play = Play({A: [shed(8.0), VIEW], B: shed(8.0)}, patience=60, seed=seed)
        play.run()
        rests.append(round(play.clock.monotonic() - play.times[0], 2))
    assert len(set(rests)) > 15
    assert all(8.0 <= rest <= 10.1 for rest in rests)


def test_a_client_whose_patience_ends_before_it_may_ask_again_says_so_at_once_and_asks_no_more() -> None:
    play = Play({A: shed(30.0), B: shed(40.0)}, patience=10)
    begun = play.clock.monotonic()
    with pytest.raises(NodeUnavailableError, match=r"longer than the patience of 10 s.*left alone for 30 s"):
        play.run()
    assert play.asked == [A, B]
    assert play.clock.monotonic() == begun


def test_a_node_that_is_away_is_asked_again_although_the_other_asks_to_be_left_alone() -> None:
    away = NodeUnavailableError("no route")
    play = Play({A: shed(30.0), B: [away, away, VIEW]}, patience=10)
    assert play.run() is VIEW
    assert play.asked == [A, B, B, B]


def test_addresses_may_come_as_one_text_and_none_is_refused() -> None:
    options: Any = {"patience_s": 1, "random": Random(1), "monotonic": ManualClock().monotonic}
    play = Play({B: VIEW}, addresses=f"{A}, {B}")
    assert play.run() is VIEW
    assert play.asked == [A, B]
    with pytest.raises(ConfigurationError, match="no manager is named"):
        Directory([], **options)


def test_no_patience_helps_where_certificates_are_refused_and_one_refusal_alone_proves_nothing() -> None:
    untrusted = UntrustedPeerError(f"{A} hung up as soon as it was asked")
    play = Play({A: untrusted, B: NodeUnavailableError("no route")}, patience=600)
    begun = play.clock.monotonic()
    with pytest.raises(UntrustedPeerError, match="TENURE_CERT"):
        play.run()
    assert play.asked.count(A) == 3
    assert play.clock.monotonic() - begun < 1.0
    # A node that was stopped in the middle of a handshake, and is there again.
    assert Play({A: [untrusted, VIEW]}).run() is VIEW
    # Somebody answers, if only that nobody leads: then it is not the certificate.
    nobody = Problem(kind=ProblemKind.UNAVAILABLE, fact="nobody leads now", retryable=True)
    assert Play({A: untrusted, B: [nobody, nobody, nobody, nobody, VIEW]}).run() is VIEW
