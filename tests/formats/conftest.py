"""Every test of this folder that takes `restored` runs on each engine, on real servers, with the fixture of format 1 in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.formats.restoring import ENGINES, Restored


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "restored" in metafunc.fixturenames:
        kinds = [pytest.param(name, marks=[] if name == "sqlite" else [pytest.mark.slow]) for name in ENGINES]
        metafunc.parametrize("restored", kinds, indirect=True)


@pytest.fixture
def restored(request: pytest.FixtureRequest, tmp_path: Path) -> Restored:
    return ENGINES[request.param](request, tmp_path)
