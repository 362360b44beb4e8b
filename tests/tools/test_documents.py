"""`docs/documents.md` names code, tests and decisions that exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "documents.md").read_text()
ROWS = [line for line in TEXT.splitlines() if line.startswith("| ") and "`tests/" in line]
SECTIONS = {"000": 7, "001": 9, "002": 12, "003": 20, "004": 8}
"""The sections of each document that say something that can be built."""


def is_there(name: str) -> bool:
    """Returns True for a module, or for a name in one."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        return hasattr(importlib.import_module(module), attribute)
    return True


def names_in(row: str, beginning: str) -> list[str]:
    return re.findall(rf"`({re.escape(beginning)}[^`]+)`", row)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:60])
def test_every_name_of_a_row_exists(row: str) -> None:
    missing = [name for name in names_in(row, "tenure.") if not is_there(name)]
    for test in names_in(row, "tests/"):
        path, _, function = test.partition("::")
        text = (ROOT / path).read_text() if (ROOT / path).exists() else ""
        wanted = r"def test_" if function == "test_*" else rf"def {function}\("
        if not re.search(wanted, text):
            missing.append(test)
    decisions = re.findall(r"\b0\d{3}\b", re.sub(r"`[^`]*`", "", row))
    missing += [number for number in decisions if not list((ROOT / "docs" / "decisions").glob(f"{number}-*.md"))]
    assert missing == []


def test_every_section_of_the_five_documents_has_a_row() -> None:
    parts = re.split(r"^## ", TEXT, flags=re.M)
    found = {part[:3]: sum("`tests/" in line for line in part.splitlines()) for part in parts if part[:3] in SECTIONS}
    assert found == SECTIONS


def test_a_name_that_is_gone_is_noticed() -> None:
    assert not is_there("tenure.jobs.timeout.NoSuchStrategy")
    assert is_there("tenure.beat.metrics")
