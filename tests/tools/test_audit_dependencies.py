"""The audit of dependencies finds a hole where there is one, and there is none."""

from __future__ import annotations

import pytest
from tools.audit_dependencies import ROOT, Advisory, Allowed, advisories, floors, holes, main, pinned


def test_no_version_that_is_allowed_has_a_known_hole(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "none with a known hole" in capsys.readouterr().out


def test_a_floor_below_a_fix_is_named_with_the_fix() -> None:
    known = [Advisory("h11", "CVE-1", "0.16.0", "smuggling")]
    found = list(holes([Allowed("h11", "0.14", "pyproject.toml"), Allowed("h11", "0.16", "x")], known))
    assert len(found) == 1
    assert "h11 0.14 has CVE-1" in found[0]
    assert not list(holes([Allowed("h11", "0.16.0", "pyproject.toml")], known))


def test_every_dependency_has_a_floor_and_every_advisory_is_about_one() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    names = {one.package for one in floors(text)}
    assert {"aiohttp", "h11", "msgspec", "cryptography", "hiredis"} <= names
    assert {one.package for one in advisories((ROOT / "requirements" / "advisories.toml").read_text())} <= names
    assert len(pinned((ROOT / "requirements" / "constraints.txt").read_text())) > 50
    with pytest.raises(ValueError, match="no floor"):
        floors('[project]\ndependencies = ["aiohttp"]\n[project.optional-dependencies]\n')
