"""A manager whose machine's wall clock is wrong, as a process: `offset_manager.py ENGINE NAME SECONDS`."""

from __future__ import annotations

import asyncio
import sys

from tenure.clock import SystemClock
from tenure.logs import node_log
from tenure.nodes.manager.serving import ManagerSettings, serve


class WrongClock(SystemClock):
    """Boot and monotonic time are right; what the wall shows is not."""

    def __init__(self, ahead_s: float) -> None:
        super().__init__()
        self._ahead_s = ahead_s

    def wall(self) -> float:
        return super().wall() + self._ahead_s


def main(engine_url: str, name: str, seconds: str) -> None:
    settings = ManagerSettings(engine_url=engine_url, name=name, port=0, term_s=2.0)
    log = node_log("manager", name)
    ready = lambda address: log.info(f"listens on {address}")  # noqa: E731
    asyncio.run(serve(settings, asyncio.Event(), log=log, on_ready=ready, clock=WrongClock(float(seconds))))


if __name__ == "__main__":
    main(*sys.argv[1:])
