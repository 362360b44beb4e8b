"""A folder of the cache is there whole or not at all, whoever looks while it is filled."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools.servers import packages

FILES = 2_000
"""So many that a copy of them takes long enough to be looked into."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(packages, "CACHE", tmp_path / "packages")
    return tmp_path / "packages"


def fill(place: Path) -> None:
    for number in range(FILES):
        (place / f"{number}").write_text("x")


def test_what_is_fetched_is_found_and_not_fetched_again() -> None:
    folder = packages.unpacked("program", fill)

    assert packages.unpacked("program", lambda place: pytest.fail("fetched twice")) == folder
    assert len(list(folder.iterdir())) == FILES
    assert folder.stat().st_mode & 0o777 == 0o755


def test_another_process_never_sees_a_part_of_it(cache: Path) -> None:
    cache.mkdir()
    watcher = os.fork()
    if watcher == 0:  # the one that looks: it leaves with 0 when what it saw first was whole
        while not (cache / "program").exists():
            pass
        os._exit(0 if len(os.listdir(cache / "program")) == FILES else 1)

    packages.unpacked("program", fill)

    assert os.waitpid(watcher, 0)[1] == 0


def test_a_fetch_that_fails_leaves_nothing(cache: Path) -> None:
    def fail(place: Path) -> None:
        (place / "half").write_text("x")
        raise packages.CannotStart("cut off")

    with pytest.raises(packages.CannotStart):
        packages.unpacked("program", fail)

    assert [path.name for path in cache.iterdir()] == ["program.lock"]
