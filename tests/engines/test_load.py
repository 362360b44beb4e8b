"""The check of `Load` says what was lost, and only that: also on a machine so busy that leases end while it checks."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.engines.load import Load

from tenure.clock import ManualClock
from tenure.engines import Engine


def checked(engine: Any, clock: ManualClock, sent: set[int]) -> None:
    """Checks a load of which ten messages were claimed for 30 s by somebody who never heard of it. The check takes 31 s."""
    load = object.__new__(Load)
    load.sent, load.settled, load.unsure, load.epochs, load.entries = sent, [], set(), [], []
    work, done = engine.mailbox("work"), engine.mailbox("done")
    for number in range(20):
        work.send(number, reply_to="done")
    assert len(work.receive(10, 30)) == 10
    receive = done.receive

    def slow(*values: Any, **options: Any) -> Any:
        clock.advance(31)
        return receive(*values, **options)

    done.receive = slow
    engine.mailbox = {"work": work, "done": done}.__getitem__
    load._check(engine)


def test_a_lease_that_ends_during_the_check_is_no_loss() -> None:
    clock = ManualClock()
    with Engine.open("memory://", clock=clock) as engine:
        checked(engine, clock, set(range(20)))


def test_a_message_that_is_nowhere_is_one() -> None:
    clock = ManualClock()
    with Engine.open("memory://", clock=clock) as engine, pytest.raises(AssertionError, match=re.escape("lost: [0, 1")):
        checked(engine, clock, set(range(21)))
