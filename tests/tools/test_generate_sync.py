"""The blocking twins of the async sources are current, and the tool that writes them can say that they are not."""

from __future__ import annotations

import pytest

from tools import generate_sync


@pytest.mark.parametrize("source", generate_sync.SOURCES)
def test_a_twin_is_what_its_source_says(source: str) -> None:
    twin = (generate_sync.ROOT / generate_sync.SOURCES[source]).read_text()
    assert twin == generate_sync.twin_of(source), "run: python tools/generate_sync.py"


def test_a_twin_awaits_nothing() -> None:
    for twin in generate_sync.SOURCES.values():
        text = (generate_sync.ROOT / twin).read_text()
        assert "await " not in text
        assert "async" not in text.partition("\n")[2].replace("async_", "")
