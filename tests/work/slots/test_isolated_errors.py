from __future__ import annotations

import pytest

from tenure.work.slots.isolated_errors import IsolatedErrors


def test_what_fails_is_said_ever_more_rarely_and_always_counted() -> None:
    said: list[str] = []
    errors = IsolatedErrors(said.append)
    for _ in range(100):
        with errors.isolate("looking at record 3"):
            raise ArithmeticError("injected")
    with errors.isolate("looking at record 4"):
        raise ArithmeticError("another")
    assert errors.count == 101
    assert len(said) == 8  # 1, 2, 4, 8, 16, 32, 64; and the other one
    assert "looking at record 3 failed, time 64" in said[6]
    assert "ArithmeticError" in said[7]


def test_what_goes_well_is_not_counted_and_what_ends_a_process_is_not_held_up() -> None:
    errors = IsolatedErrors(lambda text: None)
    with errors.isolate("nothing"):
        pass
    with pytest.raises(KeyboardInterrupt), errors.isolate("an interrupt"):
        raise KeyboardInterrupt
    assert errors.count == 0
