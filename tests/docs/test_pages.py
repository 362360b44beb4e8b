"""Every page can be found: from the navigation of the site, and from its first page."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(page.name for page in (ROOT / "docs").glob("*.md") if page.name != "index.md")


@pytest.mark.parametrize("place", ["mkdocs.yml", "docs/index.md"])
def test_every_page_is_listed(place: str) -> None:
    text = (ROOT / place).read_text()
    assert [page for page in PAGES if page not in text] == []
