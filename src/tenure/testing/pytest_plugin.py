"""Fixtures that pytest finds by itself once Tenure is installed. Imports nothing heavy: every pytest run loads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tenure.clock import ManualClock


@pytest.fixture
def tenure_clock() -> ManualClock:
    """A clock that moves only when the test says so."""
    from tenure.clock import ManualClock

    return ManualClock()
