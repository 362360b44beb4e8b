from __future__ import annotations

import os
from typing import ClassVar

from tests.contract.case import ServerCase

from tenure.clock import SystemClock
from tenure.engines import Engine


class ValkeyCase(ServerCase):
    """A namespace of its own for each test, on one server for the whole run."""

    name = "redis-valkey"
    fixture: ClassVar[str] = "valkey_url"

    @property
    def live_url(self) -> str:
        url: str = self.request.getfixturevalue(self.fixture)
        return f"{url}{'&' if '?' in url else '?'}namespace={self._namespace}"

    @property
    def _namespace(self) -> str:
        return f"t{os.getpid()}-{abs(hash(str(self.folder))):x}"

    def open(self) -> Engine:
        return Engine.open(self.live_url, clock=SystemClock())


class OldRedisCase(ValkeyCase):
    """Redis 6.2, the oldest that is supported."""

    name = "redis-6.2"
    fixture = "redis_url"


CASES = [ValkeyCase, OldRedisCase]
