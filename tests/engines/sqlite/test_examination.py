from __future__ import annotations

from pathlib import Path

import pytest

from tenure.engines import Engine, Level
from tenure.engines.sqlite import examination
from tenure.engines.sqlite.url import read_url


def test_a_healthy_file_has_no_errors_and_no_warnings(tmp_path: Path) -> None:
    with Engine.open(f"sqlite:///{tmp_path}/t.db") as engine:
        found = engine.check()
    assert {level for level, _, _ in found} <= {Level.OK, Level.WARNING}
    assert not [what for level, what, _ in found if level is Level.WARNING and "free" not in what]
    assert any("power cut" in what for _, what, _ in found)


def test_what_weakens_a_promise_is_said_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = read_url(f"sqlite:///{tmp_path}/t.db?synchronous=normal")
    monkeypatch.setattr(examination, "filesystem_of", lambda path: "nfs4")
    monkeypatch.setattr(examination, "LITTLE_ROOM_BYTES", 1 << 62)
    found = examination.examine(address, "the folder is read-only", integrity=lambda: "row 7 missing from index")
    said = {what: (level, remedy) for level, what, remedy in found}
    for part, level in (
        ("power cut", "warning"),
        ("nfs4", "error"),
        ("are free", "warning"),
        ("poll", "warning"),
        ("row 7", "error"),
    ):
        [(what, (got, remedy))] = [(what, rest) for what, rest in said.items() if part in what]
        assert got == level, what
        assert remedy, what


def test_the_file_system_of_a_path_is_told() -> None:
    assert examination.filesystem_of(Path("/proc/self/x")) == "proc"
    assert examination.filesystem_of(Path("/dev/shm/x")) == "tmpfs"
