"""A server whose disk is full, by the word of its kernel: every call ends in time and says so, nothing that was acknowledged is lost, and all goes on with room.

SQLite's full disk is in `process/test_sqlite_processes.py`, what Redis says of one in `redis/test_address.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.engines.load import Load
from tests.engines.test_chaos import GROWTH_BYTES, SLACK_S, TIMEOUT_S, resident
from tests.patience import wait_until
from tests.soak import sized
from tools.servers.small_disk import OnSmallDisk, SmallNats, SmallPostgres

from tenure.errors import EngineFullError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
FULL_S = sized("seconds for which the disk of an engine's server is full", short=1.0, long=20.0)


@pytest.mark.parametrize("kind", [SmallPostgres, SmallNats])
def test_a_full_disk_costs_time_and_nothing_else(kind: type[Any], own_server: Callable[[Any], Any]) -> None:
    server: OnSmallDisk = own_server(kind())
    load = Load(f"{server.url}?timeout={TIMEOUT_S}")
    try:
        load.goes_on("before")
        before, load.slowest_s = resident(), 0.0
        server.fill()
        wait_until(lambda: any(isinstance(error, EngineFullError) for error in load.refused), why=load.told)
        time.sleep(FULL_S)
        server.make_room()
        server.after_room()
        load.goes_on("with room again")
        assert load.slowest_s < 2 * TIMEOUT_S + SLACK_S
        assert resident() - before < GROWTH_BYTES
        for error in load.refused:
            if isinstance(error, EngineFullError):
                assert "no space left on device" in error.fact.lower()
                assert "Make room" in error.remedy
        load.finish()
    finally:
        load.close()
