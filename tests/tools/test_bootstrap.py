"""The set-up on machines that have less than this one."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tools import bootstrap


def test_a_finished_environment_is_left_alone_so_that_it_works_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "FOLDERS", {"core": str(tmp_path / "env")})
    monkeypatch.setattr(sys, "argv", ["bootstrap.py", "core"])
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / ".ready-core").write_text(bootstrap.fingerprint())
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: pytest.fail(f"it ran {args}"))
    assert bootstrap.main() == 0


def test_a_change_of_what_is_wanted_changes_the_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = bootstrap.fingerprint()
    constraints = tmp_path / "constraints.txt"
    constraints.write_text(bootstrap.CONSTRAINTS.read_text() + "more==1\n")
    monkeypatch.setattr(bootstrap, "CONSTRAINTS", constraints)
    assert bootstrap.fingerprint() != before


def test_every_requirement_has_a_pinned_version() -> None:
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in bootstrap.CONSTRAINTS.read_text().splitlines()}
    for name in [*bootstrap.group("dev"), *bootstrap.group("servers")]:
        assert name.split(">")[0].split("[")[0].lower() in pinned, name


@pytest.mark.parametrize("kind", ["", "nonsense"])
def test_a_wrong_word_gets_the_help(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bootstrap.py", kind])
    assert bootstrap.main() == 2
    assert "core|dev|servers" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("package", ["virtualenv", "uv"])
def test_without_ensurepip_another_tool_makes_the_environment(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Debian without python3-venv; each tool comes from PyPI into a folder of its own."""
    if not _can_download(package, tmp_path):
        pytest.skip(f"PyPI is out of reach here: the set-up by {package} was not tried")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ensurepip" else find(name))
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    if package == "uv":
        real = subprocess.run
        broken = subprocess.CompletedProcess([], 1)
        monkeypatch.setattr(
            subprocess, "run", lambda command, **rest: broken if "virtualenv" in command else real(command, **rest)
        )
    bootstrap.create(tmp_path / "env")
    done = subprocess.run(
        [tmp_path / "env" / "bin" / "python", "-m", "pip", "--version"], capture_output=True, text=True, check=True
    )
    assert "pip" in done.stdout


def _can_download(package: str, folder: Path) -> bool:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(folder / "wheels"), package]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
