"""Engines of one process that share a log: it is followed once, and each engine lives and ends by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.contract.case import Background

from tenure.clock import SystemClock
from tenure.engines.nats import NatsEngine, open_nats
from tenure.engines.urls import PatientOpening, open_engine
from tenure.errors import EngineClosedError, EngineUnavailableError
from tenure.randomness import fresh_random

pytestmark = pytest.mark.slow
Shared = Callable[..., NatsEngine]


@pytest.fixture
def shared(nats_url: str, namespace: str) -> Iterator[Shared]:
    engines: list[NatsEngine] = []

    def make(options: str = "") -> NatsEngine:
        engines.append(open_nats(f"{nats_url}?namespace={namespace}{options}", SystemClock(), shared=True))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def test_the_two_engines_of_a_worker_follow_the_log_once(nats_url: str, namespace: str) -> None:
    """As its supervisor and its node open theirs."""
    url = f"{nats_url}?namespace={namespace}"
    engines = [PatientOpening(url, SystemClock(), fresh_random(), print).attempt() for _ in range(2)]
    try:
        one, two = engines
        assert isinstance(one, NatsEngine)
        assert isinstance(two, NatsEngine)
        assert one.log is two.log
        with open_engine(url, SystemClock()) as other:
            assert other.log is not one.log  # type: ignore[attr-defined]
    finally:
        for engine in engines:
            assert engine is not None
            engine.close()


def test_an_engine_that_shares_its_log_ends_alone(shared: Shared) -> None:
    leaving, staying = shared(), shared()
    polls = [Background(lambda e=e: e.mailbox("work").receive(1, 60, 30)) for e in (leaving, staying)]
    leaving.close()
    assert polls[0].result() == []
    with pytest.raises(EngineClosedError):
        leaving.mailbox("work")
    staying.mailbox("work").send("x")
    assert [message.body for message in polls[1].result(20)] == ["x"]
    staying.close()
    assert shared().mailbox("work").depth().leased == 1  # opened anew after the last has left


def test_engines_with_other_settings_share_nothing(shared: Shared) -> None:
    assert shared().log is not shared("&timeout=7").log


def test_a_log_that_could_not_be_opened_is_tried_anew() -> None:
    for _ in range(2):
        with pytest.raises(EngineUnavailableError):
            open_nats("nats://127.0.0.1:1?timeout=0.3", SystemClock(), shared=True)
