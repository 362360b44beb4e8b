"""The frameworks' own environment, `.frameworks` (decision 0460), comes to the end of the path: what both have, the tests' environment gives."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contrib import work_app

from tenure.local.embedded import Embedded, embedded

ROOT = Path(__file__).parents[2]
FOUND = sorted((ROOT / ".frameworks" / "lib").glob(f"python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"))
PATHS = [str(path) for path in FOUND]
sys.path.extend(PATHS)


@pytest.fixture(scope="session")
def datacenter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """A manager and two slots in processes of their own, which serve `work_app`."""
    with embedded(tmp_path_factory.mktemp("dc"), work_app.SERVED) as running:
        yield running
