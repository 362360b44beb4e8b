"""A real slot process makes its resources once, and cleans them up when it drains."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure import embedded


def test_a_slot_makes_its_resource_once_and_cleans_it_up_when_it_drains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    monkeypatch.setenv("MIDDLEWARE_NOTES", str(notes))
    from tests.process.middleware_app import predict

    with embedded(tmp_path / "dc", [predict], slots=1, mode="processes", grace_s=60) as datacenter:
        said = {datacenter.submit(predict, value=1).wait(180), datacenter.submit(predict, value=1).wait(180)}
        assert len(said) == 1, "both ran in one process, with one model"
        assert notes.read_text() == "made\n"
    assert notes.read_text() == "made\ncleaned up\nslot ended\n"
