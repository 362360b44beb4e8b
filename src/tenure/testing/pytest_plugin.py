"""Fixtures that pytest finds by itself once Tenure is installed. Imports nothing heavy: every pytest run loads it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tenure.clock import ManualClock
    from tenure.testing.datacenter import TestDatacenter
    from tenure.testing.mailbox import FakeEngine, FakeMailbox


@pytest.fixture
def tenure_clock() -> ManualClock:
    """A clock that moves only when the test says so."""
    from tenure.clock import ManualClock

    return ManualClock()


@pytest.fixture
def tenure_engine(tenure_clock: ManualClock) -> Iterator[FakeEngine]:
    """An engine in memory, on `tenure_clock`, whose mailboxes can be made to fail."""
    from tenure.testing.mailbox import FakeEngine

    with FakeEngine(tenure_clock) as engine:
        yield engine


@pytest.fixture
def tenure_mailbox(tenure_engine: FakeEngine) -> FakeMailbox[Any, Any]:
    """A mailbox of `tenure_engine` that can expire receipts, lose its connection, and counts its calls."""
    return tenure_engine.mailbox("mailbox")


@pytest.fixture
def tenure_dc(tenure_clock: ManualClock) -> Iterator[TestDatacenter]:
    """A whole datacenter on `tenure_clock`: submit workflows, let hours pass, ask why. Nothing waits."""
    from tenure.testing.datacenter import TestDatacenter

    datacenter = TestDatacenter(clock=tenure_clock)
    try:
        yield datacenter
    finally:
        datacenter.close()
