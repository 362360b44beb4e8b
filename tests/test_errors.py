from __future__ import annotations

import pytest

from tenure import errors


def every_error() -> list[type[errors.TenureError]]:
    found, queue = [], [errors.TenureError]
    while queue:
        kind = queue.pop()
        found.append(kind)
        queue += kind.__subclasses__()
    return [kind for kind in found if kind.__module__.startswith(f"{errors.__name__}.")]


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_each_error_is_documented_and_stands_in_the_drawn_tree(kind: type[errors.TenureError]) -> None:
    assert kind.__doc__
    assert kind.__name__ in (errors.__doc__ or "")
    assert getattr(errors, kind.__name__) is kind  # `tenure.errors` is the one place to import from


def test_an_error_says_the_fact_and_then_the_remedy() -> None:
    error = errors.ReceiptHandleExpiredError("m-1")
    assert str(error).startswith("receipt handle expired for message m-1: its lease ran out. Stop the work")
    assert error.message_id == "m-1"
    assert not error.retryable


def test_a_limit_names_the_field_the_value_and_what_is_allowed() -> None:
    error = errors.LimitError("delay", -1, "between 0 and 43,200 s")
    assert str(error) == "delay is -1, and must be between 0 and 43,200 s"
    assert isinstance(error, ValueError)


def test_errors_about_reach_can_be_retried_and_errors_about_facts_cannot() -> None:
    assert errors.MailboxConnectionError("gone").retryable
    assert not errors.StaleEpochError(1, 2).retryable
