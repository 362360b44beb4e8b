"""Runs every test of this folder against every engine, and says at the end how many that were."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.contract.case import EngineCase, ServerCase

from tenure.engines import Engine


def every_case() -> list[type[EngineCase]]:
    found: list[type[EngineCase]] = []
    for path in sorted((Path(__file__).parent / "cases").glob("[a-z]*.py")):
        module = import_module(f"tests.contract.cases.{path.stem}")
        found += getattr(module, "CASES", None) or ([module.CASE] if hasattr(module, "CASE") else [])
    return found


CASES = every_case()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "exact: hits moments exactly, so it runs only where a manual clock passes time")
    config.addinivalue_line("markers", "threads: a thread waits while another passes time; not inside a simulation")
    config.addinivalue_line("markers", "processes: runs only on engines whose data several processes share")
    config.addinivalue_line(
        "markers",
        "guarantee(name): what an engine may refuse to promise, in `Engine.refusals`; the test is then skipped",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        marks = {mark.name for mark in metafunc.definition.iter_markers()}
        fit = [c for c in CASES if (c.exact or "exact" not in marks) and (c.processes or "processes" not in marks)]
        fit = [c for c in fit if c.real_time or not ("threads" in marks or "live" in metafunc.fixturenames)]
        # Servers pass time by waiting: their part of the suite takes minutes, and `make quick` leaves it out.
        cases = [pytest.param(c, marks=[pytest.mark.slow] if issubclass(c, ServerCase) else []) for c in fit]
        metafunc.parametrize("case", cases, ids=[case.name for case in fit], indirect=True)


@pytest.fixture
def case(request: pytest.FixtureRequest, tmp_path: Path, record_property: Any) -> Iterator[EngineCase]:
    """The engine under test, with fresh data."""
    kind: type[EngineCase] = request.param
    record_property("engine", kind.name)
    opened = kind(request, tmp_path)
    try:
        record_property("refusals", len(opened.engine.refusals))
        skip_what_is_refused(request, opened)
        yield opened
    finally:
        opened.close()


def skip_what_is_refused(request: pytest.FixtureRequest, case: EngineCase) -> None:
    mine = {request.node.originalname, request.module.__name__.rpartition(".")[2]}
    mine |= {name for mark in request.node.iter_markers("guarantee") for name in mark.args}
    for refusal in case.engine.refusals:
        if refusal.guarantee in mine:
            pytest.skip(f"{case.name} refuses {refusal.guarantee}: {refusal.reason}")


@pytest.fixture
def engine(case: EngineCase) -> Engine:
    return case.engine


@pytest.fixture
def live(case: EngineCase) -> Engine:
    """On the system's clock, for what really waits."""
    return case.live()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Counted from the reports, which also come back from the workers of pytest-xdist."""
    counts: dict[str, Counter[str]] = {}
    refused: Counter[str] = Counter()
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            engine = dict(getattr(report, "user_properties", [])).get("engine")
            if engine is None:
                continue
            counts.setdefault(engine, Counter())[outcome] += 1
            if outcome == "skipped":
                refused[re.sub(r"^Skipped: ", "", str(report.longrepr[2]))] += 1
    if not counts:
        return
    terminalreporter.section("conformance, per engine")
    for engine, count in sorted(counts.items()):
        parts = ", ".join(f"{count[outcome]} {outcome}" for outcome in ("passed", "failed", "error", "skipped"))
        terminalreporter.write_line(f"{engine:<20}{parts}")
    for reason, times in refused.most_common():
        terminalreporter.write_line(f"  {times} x {reason}")
