"""Tracebacks and stack dumps show the user's code first."""

from __future__ import annotations

import faulthandler
import tempfile
from pathlib import Path

import tenure
from tenure.work.stack_text import exception_evidence, is_users, stack_evidence


def users_function(depth: int) -> None:
    if depth:
        users_function(depth - 1)
    raise ValueError("a bad value")


def raised_through_tenure() -> BaseException:
    """The error of a user's function that code of ours called."""
    from tenure.work.context import run_with_context

    try:
        run_with_context(None, lambda: users_function(1))  # type: ignore[arg-type]
    except ValueError as error:
        return error
    raise AssertionError


def test_frames_of_tenure_are_folded_and_the_place_is_the_users() -> None:
    found = exception_evidence(raised_through_tenure())
    assert "in users_function" in found["traceback"]
    assert "context.py" not in found["traceback"]
    assert "1 frames of Tenure are not shown" in found["traceback"]
    assert found["place"].endswith(", in users_function")
    assert Path(__file__).name in found["place"]


def test_the_cause_of_an_error_is_folded_too() -> None:
    try:
        raise RuntimeError("outer") from raised_through_tenure()
    except RuntimeError as error:
        found = exception_evidence(error)
    assert "The above exception was the direct cause" in found["traceback"]
    assert "context.py" not in found["traceback"]


def test_an_error_that_cannot_be_written_leaves_no_evidence() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

        @property
        def __traceback__(self) -> None:  # type: ignore[override]
            raise RuntimeError("no")

    assert isinstance(exception_evidence(Broken()), dict)


def test_a_dump_has_the_thread_with_the_users_code_first_and_folds_what_called_it() -> None:
    ours = str(Path(tenure.__file__).parent / "work" / "slot.py")
    dump = (
        f'Thread 0x01 (most recent call first):\n  File "{ours}", line 3 in listen\n\n'
        'Current thread 0x02 (most recent call first):\n  File "/app/jobs.py", line 15 in hang\n'
        f'  File "{ours}", line 136 in call\n  File "{ours}", line 9 in main\n'
    )
    found = stack_evidence(dump)
    first, second = found["stacks"].strip().split("\n\n")
    assert "in hang" in first
    assert first.endswith("(2 frames of Tenure are not shown)")
    assert "in listen" in second
    assert found["place"] == "/app/jobs.py:15, in hang"


def test_a_real_dump_is_understood() -> None:
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        found = stack_evidence(file.read())
    assert "test_a_real_dump_is_understood" in found["stacks"]
    assert is_users(__file__)
    assert not is_users(tenure.__file__)
    assert stack_evidence("") == {}
