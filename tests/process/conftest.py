"""A test of processes that fails shows what each of them said last: what happened is in there, and is gone with the machine otherwise."""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

LINES, WIDTH = 8, 180
ROUTINE = re.compile(r'audit \{"audit":"wrote"')
"""One for each request: they would be all that one sees."""
RECENT_S = 180.0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        words = "\n".join(last_words(log) for log in dict.fromkeys(logs_of(item)))
        if words:
            report.sections.append((f"Captured stdout {report.when}: the last words of each process", words))
            item.add_report_section(report.when, "stdout", words)  # the file from which CI's last lines are made
    return report


def logs_of(item: Any) -> Iterator[Path]:
    """The logs in the folders that the test was given; where it did not get so far, those that were written of late."""
    given = [getattr(value, "folder", value) for value in getattr(item, "funcargs", {}).values()]
    folders = [folder for folder in given if isinstance(folder, Path) and folder.is_dir()]
    for folder in folders:
        yield from sorted(folder.glob("*.log"))
    if not any(list(folder.glob("*.log")) for folder in folders):
        base = item.config._tmp_path_factory.getbasetemp()
        for log in sorted([*base.glob("*/*.log"), *base.glob("*/*/*.log")]):
            if time.time() - log.stat().st_mtime < RECENT_S:
                yield log


def last_words(log: Path) -> str:
    said = [line[:WIDTH] for line in log.read_text(errors="replace").splitlines() if not ROUTINE.search(line)]
    return "\n".join([f"--- {log.stem}", *said[-LINES:]])
