"""The code on the pages runs as printed: the tutorial whole, and on the pages for people who come from another queue the part that is ours."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from tenure.testing import TestDatacenter

DOCS = Path(__file__).parents[2] / "docs"
MOVING = sorted((DOCS / "moving").glob("*.md"))
RUN = [*MOVING, DOCS / "middleware.md"]


def blocks(page: Path, *, titled: bool) -> list[str]:
    pattern = r"```python title=\"[^\"]*\"\n(.*?)```" if titled else r"```python\n(.*?)```"
    return re.findall(pattern, page.read_text(), re.DOTALL)


def test_the_tutorial_runs_from_its_first_block_to_its_last() -> None:
    found = blocks(DOCS / "tutorial.md", titled=False)
    assert len(found) == 4
    scope: dict[str, Any] = {"__name__": "tutorial"}
    for number, block in enumerate(found):
        exec(compile(block, f"tutorial.md, block {number + 1}", "exec"), scope)


@pytest.mark.parametrize("page", RUN, ids=[page.stem for page in RUN])
def test_code_that_moved_runs_and_gives_what_the_page_says(page: Path) -> None:
    scope: dict[str, Any] = {"__name__": page.stem}
    for block in blocks(page, titled=False):
        exec(compile(block, page.name, "exec"), scope)
    calls = re.findall(r"<!-- run: (\w+)\((.*)\) == (.*) -->", page.read_text())
    assert calls
    with TestDatacenter() as datacenter:
        for name, given, expected in calls:
            call = ast.parse(f"f({given})", mode="eval").body
            assert isinstance(call, ast.Call)
            arguments = {one.arg: ast.literal_eval(one.value) for one in call.keywords if one.arg}
            assert datacenter.submit(scope[name], arguments).wait() == ast.literal_eval(expected)


@pytest.mark.parametrize("page", MOVING, ids=[page.stem for page in MOVING])
def test_the_peers_code_on_a_page_can_at_least_be_read(page: Path) -> None:
    for block in blocks(page, titled=True):
        ast.parse(block)
