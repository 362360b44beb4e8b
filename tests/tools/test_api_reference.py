"""The reference page says what the types say."""

from __future__ import annotations

from tools.api_reference import PAGE, reference, with_reference

from tenure.nodes.messages.operations import OPERATIONS


def test_the_reference_page_is_fresh() -> None:
    page = PAGE.read_text()
    assert page == with_reference(page), "run python tools/api_reference.py"


def test_every_operation_has_a_section() -> None:
    text = reference()
    for operation in OPERATIONS:
        assert f"\n### {operation.name}\n" in text
        assert operation.summary in text
