"""What the fronts of mailboxes share, without an engine."""

from __future__ import annotations

import pytest

from tenure.engines.checked_mailbox import LostClaims
from tenure.errors import EngineUnavailableError


def test_lost_claims_are_given_back_once() -> None:
    lost: LostClaims[int] = LostClaims()
    given: list[list[int]] = []
    lost.give_back(given.append)
    lost.add(7)
    lost.add(8, 9)
    lost.give_back(given.append)
    lost.give_back(given.append)
    assert given == [[7, 8, 9]]


def test_lost_claims_that_could_not_be_given_back_are_kept() -> None:
    lost: LostClaims[str] = LostClaims()
    lost.add("a")

    def unreachable(tokens: list[str]) -> None:
        raise EngineUnavailableError("down")

    with pytest.raises(EngineUnavailableError):
        lost.give_back(unreachable)
    given: list[list[str]] = []
    lost.give_back(given.append)
    assert given == [["a"]]
