"""What `make test-pythons` says of versions that it can and cannot try."""

from __future__ import annotations

import sys

import pytest

from tools import bootstrap, pythons
from tools import test_all_pythons as tool

HERE = "{}.{}".format(*sys.version_info[:2])


@pytest.fixture
def environments(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Environments that stand, and the exit code of the tests in each."""
    codes: dict[str, int] = {}
    monkeypatch.setattr(tool, "interpreter", lambda version: "/a/python" if version in codes else None)
    monkeypatch.setattr(tool, "environment_of", lambda version, python: "")
    monkeypatch.setattr(tool, "tests", lambda version, only: codes[version])
    return codes


def test_a_promised_version_that_is_not_here_fails_the_run_and_says_what_would_help(
    environments: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    environments.update({"3.11": 0, "3.12": 0})
    assert tool.main(["--only", "tests/jobs"]) == 1
    shown = capsys.readouterr().out
    assert "Python 3.11  ok" in shown
    assert "Python 3.13  FAILED" in shown
    assert "TENURE_PYTHONS" in shown


def test_a_version_that_is_only_hoped_for_may_be_missing_and_is_never_claimed(
    environments: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    environments.update(dict.fromkeys(pythons.PROMISED, 0))
    assert tool.main([]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Python 3.14")]
    assert "NOT RUN" in line
    assert " ok " not in line


def test_wheels_that_are_missing_count_only_for_promised_versions(
    environments: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    environments.update(dict.fromkeys((*pythons.PROMISED, *pythons.HOPED_FOR), 0))
    monkeypatch.setattr(tool, "environment_of", lambda version, python: "no wheel" if version == "3.14" else "")
    assert tool.main([]) == 0
    monkeypatch.setattr(tool, "environment_of", lambda version, python: "no wheel" if version == "3.13" else "")
    assert tool.main([]) == 1


def test_a_failure_on_one_version_fails_the_run(environments: dict[str, int]) -> None:
    environments.update({"3.12": 0, "3.13": 1})
    assert tool.main(["--versions", "3.12,3.13"]) == 1
    assert tool.main(["--versions", "3.12"]) == 0


def test_this_very_interpreter_is_found_and_one_that_does_not_exist_is_not() -> None:
    assert pythons.interpreter(HERE) == sys.executable
    assert pythons.interpreter("3.99") is None


def test_the_promised_versions_are_those_of_the_classifiers() -> None:
    text = (bootstrap.ROOT / "pyproject.toml").read_text()
    named = [
        line.split("::")[-1].strip(' ",')
        for line in text.splitlines()
        if "Programming Language :: Python :: 3." in line
    ]
    assert tuple(named) == pythons.PROMISED
