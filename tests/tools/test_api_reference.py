"""The reference page says what the types say."""

from __future__ import annotations

from tools.api_reference import EVENTS, LIMITS, PAGE, events, limits, reference, with_reference

from tenure.control.messages.operations import OPERATIONS


def test_the_reference_pages_are_fresh() -> None:
    for path, text in ((PAGE, reference()), (LIMITS, limits()), (EVENTS, events())):
        page = path.read_text()
        assert page == with_reference(page, text), "run python tools/api_reference.py"


def test_every_bound_is_in_words() -> None:
    text = limits()
    assert "| `QueueName` | The name of a queue; with a priority it names a mailbox | 1 to 115 letters, digits" in text
    assert "| `Rate` | So many a second | 1e-09 to 1,000,000 |" in text
    assert "submissions` | list of 1 to 1,000: [JobSubmission](#jobsubmission)" in reference()


def test_every_operation_has_a_section() -> None:
    text = reference()
    for operation in OPERATIONS:
        assert f"\n### {operation.name}\n" in text
        assert operation.summary in text
