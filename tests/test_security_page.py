"""docs/security.md claims only what a test shows: every cell names tests, and each of them exists."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "security.md").read_text()
_NAMED = re.compile(r"`(test_\w+\.py|…)(?:::(test_\w+))?`")


@cache
def sources(file: str) -> tuple[str, ...]:
    return tuple(path.read_text() for path in TESTS.rglob(file))


def tables() -> list[list[str]]:
    """The rows of all tables, without their heads, as cells."""
    rows = [line.strip("|").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows if row[0].strip() != "who"]


def test_every_test_that_the_page_names_exists() -> None:
    file, missing = "", []
    found = list(_NAMED.finditer(PAGE))
    assert len(found) > 50
    for one in found:
        file = file if one[1] == "…" else one[1]
        known = sources(file)
        if not known or (one[2] and not any(f"def {one[2]}(" in text for text in known)):
            missing.append(one[0])
    assert not missing, missing


def test_every_cell_of_the_threat_model_and_every_line_about_tools_names_a_test() -> None:
    bare = []
    for row in tables():
        cells = row[2:] if len(row) == 4 and not row[1].startswith("to ") else row[3:]
        bare += [(row[0], cell[:80]) for cell in cells if not _NAMED.search(cell)]
    assert not bare, bare


def test_everybody_of_the_threat_model_has_a_line() -> None:
    who = " ".join(row[0] for row in tables())
    for one in ("stranger", "another user", "client", "worker", "gate", "engine"):
        assert one in who
