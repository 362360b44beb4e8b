"""Reading a URL, and what `tenure doctor` finds about a file and its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure.clock import ManualClock
from tenure.engines import Engine
from tenure.engines.contracts import Level
from tenure.engines.sqlite import address
from tenure.engines.sqlite.address import Synchronous, read_url
from tenure.errors import ConfigurationError


def test_three_slashes_are_relative_and_four_are_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_url("sqlite:///a/b.db").path == tmp_path / "a" / "b.db"
    assert read_url("sqlite:////var/lib/b.db").path == Path("/var/lib/b.db")


def test_a_path_may_hold_spaces_and_what_a_url_must_escape(tmp_path: Path) -> None:
    engine = Engine.open(f"sqlite:///{tmp_path}/a%20b%3Fc%23d.db", clock=ManualClock())
    engine.mailbox("work").send(1)
    engine.close()
    assert (tmp_path / "a b?c#d.db").is_file()
    with Engine.open(f"sqlite:///{tmp_path}/a%20b%3Fc%23d.db", clock=ManualClock()) as again:
        assert again.mailbox("work").approximate_count() == 1


def test_a_commit_is_on_the_disk_by_default_and_only_written_when_asked_for(tmp_path: Path) -> None:
    seen = {}
    for given, query in (("full", ""), ("full", "?synchronous=FULL"), ("normal", "?synchronous=normal")):
        with Engine.open(f"sqlite:///{tmp_path}/{given}.db{query}", clock=ManualClock()) as engine:
            with engine.database.writer as tx:  # type: ignore[attr-defined]
                seen[query] = tx.execute("PRAGMA synchronous").fetchone()[0]
            assert engine.describe()["synchronous"] == given  # type: ignore[attr-defined]
    assert seen == {"": 2, "?synchronous=FULL": 2, "?synchronous=normal": 1}
    assert read_url("sqlite:///x").synchronous is Synchronous.FULL


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:///t.db?sync=off", "busy_timeout"),
        ("sqlite:///t.db?sync=off", "synchronous"),
        ("sqlite:///t.db?synchronous=off", "full or normal"),
        ("sqlite:///t.db?synchronous=full&synchronous=normal", "twice"),
        ("sqlite:///t.db?busy_timeout=soon", "0 to 600"),
        ("sqlite:///t.db?busy_timeout=-1", "0 to 600"),
        ("sqlite:///t.db?busy_timeout=nan", "0 to 600"),
        ("sqlite://t.db", "sqlite:///t.db"),
        ("sqlite:///", "no file"),
        ("sqlite:///folder/", "no file"),
        ("sqlite:///:memory:", "memory://"),
    ],
)
def test_a_wrong_url_says_what_is_right(url: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Engine.open(url, clock=ManualClock())


def test_a_healthy_file_has_no_errors_and_no_warnings(tmp_path: Path) -> None:
    with Engine.open(f"sqlite:///{tmp_path}/t.db") as engine:
        found = engine.check()
    assert {level for level, _, _ in found} <= {Level.OK, Level.WARNING}
    assert not [what for level, what, _ in found if level is Level.WARNING and "free" not in what]
    assert any("power cut" in what for _, what, _ in found)


def test_what_weakens_a_promise_is_said_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weak = read_url(f"sqlite:///{tmp_path}/t.db?synchronous=normal")
    monkeypatch.setattr(address, "filesystem_of", lambda path: "nfs4")
    monkeypatch.setattr(address, "LITTLE_ROOM_BYTES", 1 << 62)
    found = address.examine(weak, "the folder is read-only", integrity=lambda: "row 7 missing from index")
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
    assert address.filesystem_of(Path("/proc/self/x")) == "proc"
    assert address.filesystem_of(Path("/dev/shm/x")) == "tmpfs"
