"""Run the test suites on every Python that Tenure promises, each in an environment of its own below .pythons/.

    python tools/test_all_pythons.py                          all suites on 3.11, 3.12, 3.13 and, where wheels exist, 3.14
    python tools/test_all_pythons.py --only tests/jobs        some of the tests
    python tools/test_all_pythons.py --versions 3.12,3.13

A version that was promised and cannot be tried here fails the run: nothing is claimed that was not run. One that is only hoped for says why it was not
tried. The servers of the tests keep their own environment (.servers): they are programs, and no Python of ours runs in them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.pythons import HOPED_FOR, PROMISED, interpreter  # noqa: E402  found through the line above

ENVIRONMENTS = ROOT / ".pythons"
NOT_RUN = "NOT RUN"


@dataclass(frozen=True)
class Tried:
    """How one version did."""

    version: str
    ok: bool
    seconds: float
    said: str

    def __str__(self) -> str:
        outcome = "FAILED" if not self.ok else "" if self.said.startswith(NOT_RUN) else "ok"
        return f"Python {self.version:<6}{outcome:<8}{self.seconds:>7.0f} s  {self.said}"


def environment_of(version: str, python: str) -> str:
    """Makes the version's environment, or finds it made. Returns why it cannot be made; empty when it stands."""
    command = [python, str(ROOT / "tools" / "bootstrap.py"), "dev", str(ENVIRONMENTS / version)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["bootstrap failed"])[-1]


def tests(version: str, only: list[str]) -> int:
    """Runs the suites with the version's own interpreter."""
    python = ENVIRONMENTS / version / "bin" / "python"
    suites = ["tools/run_tests.py", "--no-checks"]
    command = [str(python), *(["-m", "pytest", "-n", "2", *only] if only else suites)]
    # The source tree comes first: another environment's editable install may point elsewhere.
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, cwd=ROOT, check=False, env=env).returncode


def attempt(version: str, only: list[str]) -> Tried:
    begun, hoped = time.monotonic(), version in HOPED_FOR
    python = interpreter(version)
    if python is None:
        return Tried(version, hoped, 0.0, f"{NOT_RUN}: there is no such Python here; name one in TENURE_PYTHONS")
    print(f"\n=== Python {version}: {python}", flush=True)
    if why := environment_of(version, python):
        return Tried(version, hoped, time.monotonic() - begun, f"{NOT_RUN}: {why}")
    code = tests(version, only)
    return Tried(version, code == 0, time.monotonic() - begun, " ".join(only) or "all suites")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="TESTS", help="what pytest is told to collect")
    parser.add_argument("--versions", default=",".join((*PROMISED, *HOPED_FOR)), help="separated by commas")
    options = parser.parse_args(arguments)
    tried = [attempt(version, options.only) for version in options.versions.split(",")]
    print("\n" + "\n".join(map(str, tried)))
    return 0 if all(one.ok for one in tried) else 1


if __name__ == "__main__":
    sys.exit(main())
