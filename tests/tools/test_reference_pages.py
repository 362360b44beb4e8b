from __future__ import annotations

from pathlib import Path

import pytest
from tools.reference_pages import PAGES

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", list(PAGES))
def test_the_pages_of_settings_and_errors_say_what_the_code_says(path: str) -> None:
    assert (ROOT / path).read_text() == PAGES[path](), "run python tools/reference_pages.py"
