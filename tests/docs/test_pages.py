"""Every page can be found: from the navigation of the site, and from its first page."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.docs_site import FETCHED, OURS, without_network

ROOT = Path(__file__).parents[2]
PAGES = sorted(page.name for page in (ROOT / "docs").glob("*.md") if page.name != "index.md")


@pytest.mark.parametrize("place", ["mkdocs.yml", "docs/index.md"])
def test_every_page_is_listed(place: str) -> None:
    text = (ROOT / place).read_text()
    assert [page for page in PAGES if page not in text] == []


@pytest.mark.parametrize(("url", "place"), [("index.html", OURS), ("moving/celery.html", f"../{OURS}")])
def test_the_site_works_from_a_folder_because_it_fetches_nothing(url: str, place: str) -> None:
    assert without_network(f'<script src="{FETCHED}"></script>', url) == f'<script src="{place}"></script>'
    assert (ROOT / "docs" / OURS).is_file()
