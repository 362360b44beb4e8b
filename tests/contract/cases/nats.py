from __future__ import annotations

import os

from tests.contract.case import ServerCase
from tests.engines.nats.removing import remove_streams

from tenure.clock import SystemClock
from tenure.engines import Engine


class NatsCase(ServerCase):
    """One server for the whole run, and a namespace for each test: its streams are removed after it."""

    name = "nats"
    options = ""
    _namespace = ""

    @property
    def live_url(self) -> str:
        self._namespace = self._namespace or f"t{os.urandom(6).hex()}"
        url: str = self.request.getfixturevalue("nats_url")
        return f"{url}{'&' if '?' in url else '?'}namespace={self._namespace}{self.options}"

    def open(self) -> Engine:
        return Engine.open(self.live_url, clock=SystemClock())

    def close(self) -> None:
        super().close()
        if self._namespace:
            remove_streams(self.request.getfixturevalue("nats_url"), self._namespace)


CASE = NatsCase
