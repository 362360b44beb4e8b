"""`docs/documents.md` names code, tests and decisions that exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "documents.md").read_text()
ROWS = [line for line in TEXT.splitlines() if line.startswith("| ") and "`tests/" in line]
SECTIONS = {
    "000": [
        "Decision",
        "Rationale",
        "Extension Protocol",
        "Implementation",
        "Message Types",
        "Complete Protocol Flow Example",
        "Manager-Side Integration",
        "Grant Reduction Table",
        "Key Properties",
    ],
    "001": [
        "Decision",
        "Rationale",
        "Health Model",
        "Signal Definitions",
        "Implementation",
        "Why This Model Is Correct",
        "Manager Health",
        "Signal Definitions for Managers",
        "Integration with DC Health Classification",
        "Gate Health",
        "Signal Definitions for Gates",
        "Generic Node Health Infrastructure",
        "SWIM Piggyback for Health State",
    ],
    "002": [
        "Overview",
        "Timeout Scenarios",
        "Challenges",
        "Part 1: Deployment Topologies",
        "Part 1: Auto-Detection Pattern",
        "Part 2: Timeout Tracking State",
        "Part 2: Timeout Strategy Interface",
        "Part 3: Overview",
        "Part 3: State Diagram - Local Authority",
        "Part 4: Overview",
        "Part 4: State Diagram - Gate Coordinated (Manager)",
        "Part 5: Gate Job Tracker",
        "Part 5: State Diagram - Gate Global Coordinator",
        "Part 6: JobProgressReport",
        "Part 6: JobTimeoutReport",
        "Part 6: JobGlobalTimeout",
        "Part 7: Scenario 1: Manager Leader Failure",
        "Part 7: Scenario 2: Gate Failure (Multi-DC)",
        "Part 7: Scenario 3: Stale Global Timeout (After Leader Transfer)",
        "Part 8: The Problem",
        "Part 8: Solution: Extension-Aware Timeout",
        "Part 9: Files",
        "Summary",
    ],
    "003": [
        "Purpose",
        "Guiding Principles",
        "Architecture",
        "LeaseExtenderConfig",
        "LeaseExtender",
        "Heartbeat Extension",
        "ProviderAdapter Interface",
        "ToolContext Extension",
        "Tool Handler Pattern",
        "Adapter Threading",
        "MainLoop Integration: Configuration",
        "MainLoop Integration: Constructor",
        "MainLoop Integration: Message Handling",
        "MainLoop Integration: Heartbeat Propagation in _execute",
        "ToolExecutor Auto-Beat",
        "InnerLoop Auto-Beat",
        "Error Handling",
        "Thread Safety",
        "Comparison: Heartbeat-Based vs Daemon Thread",
        "Testing: Unit Tests",
        "Testing: Integration Tests",
        "Observability",
        "Migration Path",
        "Future Work",
    ],
    "004": [
        "Health Endpoints",
        "Heartbeat",
        "Watchdog",
        "LoopGroup Integration",
        "MainLoop Integration",
        "Timeout Calibration",
        "Kubernetes Configuration",
        "Limitations",
    ],
}
"""The headings of each document, in its order. A heading that only holds others (`Part 2`, `Core Types`) is the beginning of theirs, or left out."""
DIFFERS = TEXT.partition("## Statements that differ")[2]


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


def columns(row: str) -> list[str]:
    return [column.strip() for column in row.strip("|").split(" | ")]


def test_every_section_of_the_five_documents_has_a_row_with_code_and_a_test() -> None:
    parts = {part[:3]: part for part in re.split(r"^## ", TEXT, flags=re.M)}
    for document, headings in SECTIONS.items():
        rows = [row for row in parts[document].splitlines() if row in ROWS]
        assert [columns(row)[0] for row in rows] == headings
        assert [row for row in rows if not names_in(row, "tenure.") or not names_in(row, "tests/")] == []


def test_every_statement_that_differs_has_a_decision_and_a_test() -> None:
    rows = [columns(row) for row in DIFFERS.splitlines() if row in ROWS]
    assert len(rows) == sum(line.startswith("| 0") for line in DIFFERS.splitlines())
    for documents, says, _, why, tests in rows:
        assert set(documents.split(", ")) <= set(SECTIONS), says
        assert re.fullmatch(r"0\d{3}(, 0\d{3})*", why), says
        assert "`tests/" in tests, says


def test_a_name_that_is_gone_is_noticed() -> None:
    assert not is_there("tenure.jobs.timeout.NoSuchStrategy")
    assert is_there("tenure.beat.metrics")
