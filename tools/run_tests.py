"""Run the checks and the test suites; print time and count of each, what was skipped and why, what took longer than its share, what is left to
`make soak`, then what failed, and last of all each failed test in a line. A suite that only computes runs beside those that wait, at a lower priority;
small suites that leave a core idle run one after the other during a large one that waits. Both are shown when they end.

python tools/run_tests.py            everything (`make test`)
python tools/run_tests.py --quick    checks, and the tests that take seconds
python tools/run_tests.py --lint     checks only
python tools/run_tests.py --no-checks    tests only: on another Python the checks would say the same
python tools/run_tests.py --soak     the long versions
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.suite_shares import MOST_S, SHARES, Machine, Share, Usage, late  # noqa: E402  found through the line above

BIN = Path(sys.executable).parent
ORDER = ("process", "contract", "browser", "seeds", "fuzz", "unit", "sim", "parsers")
"""Those that wait most come first: the simulator, which runs beside them, has the most to do. What computes comes last (decision 0511)."""
SPECIAL = ("process", "contract", "browser", "seeds", "fuzz", "sim")
PARSERS = "tests/fuzz/test_parsers.py"
CHECKS = {
    "format": [str(BIN / "ruff"), "format", "--check", "--quiet", "."],
    "lint": [str(BIN / "ruff"), "check", "--quiet", "."],
    "types": [str(BIN / "mypy"), "--no-error-summary"],
    "imports": [str(BIN / "lint-imports"), "--no-logo"],
    "ownership": [sys.executable, "tools/ownership.py"],
    "readability": [sys.executable, "tools/readability.py"],
}
TAIL = 8_000
"""Characters for all failures together, at the very end: CI keeps only the last 10,000 or so of a log."""
LINES, WIDTH = 25, 160
"""Of the list that ends the run: so many failed tests are named, each with so many characters of its error."""
CHECK_LINES = 6
"""Of what a failed check said, in the same list."""
LAST_WORDS = 3_000
"""Characters of a suite's output that are kept for the case that it ends without naming a failed test."""


@dataclass
class Result:
    name: str
    seconds: float
    ok: bool
    passed: int = 0
    failed: int = 0
    skipped: list[str] = field(default_factory=list)
    failures: list[tuple[str, str, str]] = field(default_factory=list)
    """What failed, why, and all that it printed and logged."""
    cpu_s: float = 0.0
    engines: dict[str, Counter[str]] = field(default_factory=dict)
    """Of the conformance suite: how many tests ended how on each engine."""


def check(name: str, command: list[str]) -> Result:
    begun = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"--- {name} failed: {' '.join(command)}\n{done.stdout}{done.stderr}", flush=True)
    result = Result(name, time.monotonic() - begun, done.returncode == 0)
    if not result.ok:
        result.failures.append((f"check {name}", f"{' '.join(command)}\n{done.stdout}{done.stderr}", ""))
    return result


def run_checks() -> list[Result]:
    """Two at a time: the type checker takes as long as all others together."""
    slowest_first = sorted(CHECKS.items(), key=lambda item: item[0] != "types")
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda item: check(*item), slowest_first))


def suites() -> dict[str, list[str]]:
    """Each suite and what pytest is told to collect for it."""
    found = {name: [f"tests/{name}"] for name in SPECIAL}
    found["unit"] = ["tests", *(f"--ignore=tests/{name}" for name in SPECIAL)]
    found["fuzz"] = ["tests/fuzz", f"--ignore={PARSERS}"]
    found["parsers"] = [PARSERS]
    return {name: found[name] for name in ORDER}


def run_suites(*, quick: bool, soak: bool) -> list[Result]:
    """Runs the suites that wait one after the other, beside them those that only compute, and small ones during a large one (decision 0700)."""
    chosen = {name: told for name, told in suites().items() if not (quick and name in ("process", "fuzz", "browser"))}
    with ThreadPoolExecutor(1) as beside, ThreadPoolExecutor(1) as during:

        def submit(pool: ThreadPoolExecutor, name: str) -> Future[Result]:
            return pool.submit(run_suite, name, chosen[name], quick=quick, soak=soak)

        running = {name: submit(beside, name) for name in chosen if SHARES[name].beside}
        for name in (name for name in chosen if name not in running and SHARES[name].during not in chosen):
            small = {other: submit(during, other) for other in chosen if SHARES[other].during == name}
            running |= {name: completed(run_suite(name, chosen[name], quick=quick, soak=soak)), **small}
            wait(small.values())
        return [running[name].result() for name in chosen]


def completed(result: Result) -> Future[Result]:
    future = Future[Result]()
    future.set_result(result)
    return future


def run_suite(name: str, collect: list[str], *, quick: bool, soak: bool) -> Result:
    begun, share = time.monotonic(), SHARES[name]
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        command = pytest_command(share, collect, report.name)
        if quick:
            command += ["-m", "not slow"]
        say(f"--- {name}{share.together}")
        env = {**os.environ, "TENURE_SOAK": "1"} if soak else None
        output = Output(show=not share.together)
        running = subprocess.Popen(command, cwd=ROOT, env=env, stdout=output.writer)
        _, status, used = os.wait4(running.pid, 0)
        running.returncode = code = os.waitstatus_to_exitcode(status)
        said = output.end()
        if share.together:
            say(f"--- {name} has ended\n{said}")
        result = Result(name, time.monotonic() - begun, code in (0, 5), cpu_s=used.ru_utime + used.ru_stime)
        try:
            count_tests(result, ET.parse(report.name))
        except ET.ParseError:
            result.ok = False
        if not result.ok and not result.failures:
            why = f"pytest ended with code {code} and named no failed test; its last words:\n{said[-LAST_WORDS:]}"
            result.failures.append((name, why, ""))
    return result


class Output:
    """The output of a suite, which is shown while it comes or kept until the suite ends."""

    def __init__(self, *, show: bool) -> None:
        self._show, self._kept = show, bytearray()
        self._reader, self.writer = os.pipe()
        # A process that a test forgot may hold the pipe open for ever: nobody waits for it.
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while piece := os.read(self._reader, 65_536):
            self._kept += piece
            if self._show:
                sys.stdout.write(piece.decode(errors="replace"))
                sys.stdout.flush()

    def end(self) -> str:
        """Returns all that was said, once the suite has ended."""
        os.close(self.writer)
        self._thread.join(5)
        return self._kept.decode(errors="replace")


def say(text: str) -> None:
    """Prints a line as one piece: `print` writes its end apart, and the output of a suite may come between."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def pytest_command(share: Share, collect: list[str], report: str) -> list[str]:
    """No test fails for being slow: bars on time are in bench/. One that runs beside others may have to wait for a core very long."""
    command = [sys.executable, "-m", "pytest", *collect, f"--junitxml={report}"]
    for option in ("junit_family=xunit2", "junit_logging=all", "junit_log_passing_tests=false"):
        command += ["-o", option]
    command += ["-n", str(share.workers), "--dist", "worksteal"]
    return ["nice", "-n", "19", *command, "--timeout", "1800"] if share.beside else command


def count_tests(result: Result, tree: ET.ElementTree[ET.Element]) -> None:
    for case in tree.iter("testcase"):
        count_engine(result, case)
        if case.find("failure") is not None or case.find("error") is not None:
            result.failed += 1
            result.failures.append((f"{case.get('classname')}::{case.get('name')}", *said(case)))
        elif (skip := case.find("skipped")) is not None:
            result.skipped.append(skip.get("message") or "no reason given")
        else:
            result.passed += 1


def count_engine(result: Result, case: ET.Element) -> None:
    """Tests of the conformance suite say which engine they ran on, and how many guarantees that one refuses in writing."""
    told = {one.get("name"): one.get("value") for one in case.iter("property")}
    if told.get("engine"):
        kinds = {"failure": "failed", "error": "failed", "skipped": "skipped"}
        outcome = next((kinds[child.tag] for child in case if child.tag in kinds), "passed")
        counts = result.engines.setdefault(str(told["engine"]), Counter())
        counts[outcome] += 1
        counts["refusals"] = max(counts["refusals"], int(told.get("refusals") or 0))


def show_engines(results: list[Result]) -> None:
    engines = {name: counts for result in results for name, counts in result.engines.items()}
    if engines:
        print(f"\n{'conformance':<22}{'passed':>9}{'failed':>9}{'skipped':>9}{'guarantees refused in writing':>32}")
    for name, counts in sorted(engines.items()):
        numbers = "".join(f"{counts[outcome]:>9}" for outcome in ("passed", "failed", "skipped"))
        print(f"{name:<22}{numbers}{counts['refusals']:>32}")


def said(case: ET.Element) -> tuple[str, str]:
    """The traceback of a failed test, and everything that it printed and logged."""
    texts = [(child.tag, (child.text or "").strip()) for child in case]
    trace = "\n".join(text for tag, text in texts if tag in ("failure", "error"))
    return trace, "\n".join(f"[{tag}]\n{text}" for tag, text in texts if tag not in ("failure", "error") and text)


def shortened(text: str, most: int) -> str:
    """Its end, where the error and the last output are, and a little of its beginning."""
    if len(text) <= most:
        return text
    head = most // 5
    return f"{text[:head]}\n[... {len(text) - most:,} characters ...]\n{text[head - most :]}"


def show_failures(results: list[Result]) -> None:
    failures = [failure for result in results for failure in result.failures]
    lines = failed_lines(results)
    room = (TAIL - sum(map(len, lines))) // max(1, min(len(failures), 20))
    for name, why, printed in failures[:20]:
        why = shortened(why, room if not printed else room * 2 // 3)
        print(f"\n=== FAILED {name}\n{why}\n{shortened(printed, room - len(why))}".rstrip())
    if failures:
        print(f"\n{len(failures)} FAILED:")
    for line in lines:
        print(line)


def failed_lines(results: list[Result]) -> list[str]:
    """Names each failed test with its error in one line, and then each failed check with its first words: they end the run, because CI shows its last lines only."""
    tests, checks = list[str](), list[str]()
    for result in results:
        for name, why, _ in result.failures:
            if result.name in CHECKS:
                checks += check_lines(name, why)
            else:
                tests.append(f"  {name}: {error_of(why)}")
    more = [f"  ... and {len(tests) - LINES} more"] if len(tests) > LINES else []
    return [*tests[:LINES], *more, *checks]


def check_lines(name: str, why: str) -> list[str]:
    """Returns the name of a failed check and the first lines that it said: unlike a traceback, it says the most important first."""
    _, *words = [line for line in why.splitlines() if line.strip()]
    return [f"  {name}:", *(f"    {line[:WIDTH]}" for line in words[:CHECK_LINES])]


def error_of(why: str) -> str:
    """Returns the first line of pytest's `E   ...`; where there is none, as when a worker of pytest was lost, the last line that says something."""
    errors = re.findall(r"^E {2,}(.+)$", why, re.MULTILINE) or [line for line in why.splitlines() if line.strip()][-1:]
    text = errors[0] if errors else "no reason was given"
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."


def left_to_soak(tests: Path = ROOT / "tests") -> list[str]:
    """Reads the calls of `sized` in the tests: how much of each thing `make test` does, and how much `make soak`."""
    found = []
    for path in sorted(tests.rglob("*.py")):
        if "sized(" not in (text := path.read_text()):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "sized":
                sizes = {option.arg: ast.literal_eval(option.value) for option in node.keywords}
                found.append(f"{sizes['short']:>9,} of {sizes['long']:>9,}  {ast.literal_eval(node.args[0])}")
    return found


def show_left_to_soak() -> None:
    print("\nLEFT TO `make soak`, which runs the same tests with larger sizes:")
    for line in left_to_soak():
        print(f"  {line}")


def show_late(results: list[Result], seconds: float, usage: Usage) -> None:
    """Says loudly which suite took longer than its share."""
    said = [late(result.name, result.seconds, usage) for result in results]
    if seconds > MOST_S and not usage.starved:
        said.append(f"all took {seconds:.0f} s; `make test` has {MOST_S:.0f} s on two idle cores")
    for sentence in filter(None, said):
        print(f"\n!!! LATE: {sentence}")


def show(results: list[Result], seconds: float, usage: Usage) -> None:
    print(f"\n{'suite':<12}{'time':>9}{'CPU':>9}{'passed':>9}{'failed':>9}{'skipped':>9}")
    for result in results:
        counted = result.name not in CHECKS
        numbers = (
            (result.passed, result.failed, len(result.skipped))
            if counted
            else ("ok" if result.ok else "FAILED", "", "")
        )
        cpu = f"{result.cpu_s:.0f}s" if counted else ""
        print(f"{result.name:<12}{result.seconds:>8.1f}s{cpu:>9}{numbers[0]:>9}{numbers[1]:>9}{numbers[2]:>9}")
    tests = [result for result in results if result.name not in CHECKS]
    print(f"{'all':<12}{seconds:>8.1f}s{usage.cpu_s:>8.0f}s")
    print(
        f"{sum(r.passed for r in tests)} passed, {sum(r.failed for r in tests)} failed, "
        f"{sum(len(r.skipped) for r in tests)} skipped"
    )
    skipped = Counter(reason for result in tests for reason in result.skipped)
    if skipped:
        print("\nSKIPPED on this machine:")
        for reason, count in skipped.most_common():
            print(f"  {count:>4} x {reason}")
    elif tests:
        print("Nothing was skipped.")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--lint", action="store_true")
    parser.add_argument("--no-checks", action="store_true")
    parser.add_argument("--soak", action="store_true")
    options = parser.parse_args()
    begun, machine = time.monotonic(), Machine()
    results = [] if options.no_checks else run_checks()
    checked = Result("checks", time.monotonic() - begun, True)
    if not options.lint:
        results += run_suites(quick=options.quick, soak=options.soak)
    seconds, usage = time.monotonic() - begun, machine.used()
    show_engines(results)
    show(results, seconds, usage)
    if not options.soak:
        if not options.lint:
            show_left_to_soak()
        show_late([checked, *results], seconds, usage)
    show_failures(results)
    failed = [result.name for result in results if not result.ok]
    if failed:
        print(f"FAILED: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
