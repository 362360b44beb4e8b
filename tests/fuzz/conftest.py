from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.site import FuzzedSite
from tests.process.conftest import pytest_runtest_makereport
from tests.process.datacenter.conftest import _source_tree, closed
from tools.servers import Valkey

__all__ = ["_source_tree", "pytest_runtest_makereport"]


@pytest.fixture
def site(tmp_path: Path, own_server: Callable[[Any], Any], request: pytest.FixtureRequest) -> Iterator[FuzzedSite]:
    """On SQLite, or on the server that the test's parameter names."""
    site = FuzzedSite(tmp_path)
    if getattr(request, "param", "sqlite") == "valkey":
        site.url = own_server(Valkey({"appendonly": "yes", "appendfsync": "everysec"})).url
    with closed(site):
        site.begin()
        yield site
