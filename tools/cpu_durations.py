"""A pytest plugin that prints the tests and files that used most CPU time: on a shared machine the wall clock says who else was busy.

python -m pytest -p tools.cpu_durations --cpu-durations=40 tests/sim -n 2

The figure of a test is the time of its process, in all threads, and of the child processes that ended in it. A fixture counts for the test that
asked for it first. Beside it stands the wall time: a test that waits for most of it runs well beside others.
"""

from __future__ import annotations

import resource
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest


def cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-durations", type=int, default=30, help="how many tests and files to print")
    parser.addoption("--cpu-file", default="", help="add the figures of each test here as it ends, tab-separated")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Meter(config), "cpu-meter")


class Meter:
    """Notes the CPU time of each phase on its report, in each test process. The process that collects the reports adds them up."""

    def __init__(self, config: pytest.Config) -> None:
        self._most: int = config.getoption("--cpu-durations")
        named = config.getoption("--cpu-file")
        self._file = Path(named) if named and not hasattr(config, "workerinput") else None
        self._seen = cpu_s()
        self._tests: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, Any, Any]:
        self._seen = cpu_s()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        report = yield
        now = cpu_s()
        report.cpu_s, self._seen = now - self._seen, now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        figures = self._tests[report.nodeid]
        figures[0] += getattr(report, "cpu_s", 0.0)
        figures[1] += report.duration
        if report.when == "teardown" and self._file is not None:
            with self._file.open("a") as file:
                file.write(f"{figures[0]:.3f}\t{figures[1]:.3f}\t{report.nodeid}\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        files: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for name, figures in self._tests.items():
            for index, value in enumerate(figures):
                files[name.partition("::")[0]][index] += value
        for title, table in (("tests", self._tests), ("files", files)):
            total = sum(cpu for cpu, _ in table.values())
            terminalreporter.section(f"most CPU time: {title} (CPU s, wall s; {total:.0f} s of CPU in all)")
            for name, (cpu, wall) in sorted(table.items(), key=lambda pair: -pair[1][0])[: self._most]:
                terminalreporter.write_line(f"{cpu:8.2f} {wall:8.2f}  {name}")
