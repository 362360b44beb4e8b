"""Tells the service manager that started this process that it is ready, that it lives, and that it stops: systemd's notification protocol.

A process that no service manager started tells nobody anything. `WATCHDOG=1` is sent only by the code that must go on for the node to be of
use: a manager or gate sends it from its event loop, a worker after its supervisor has looked at its slots. No timer sends it by itself.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping

from tenure.clock import Clock

_SHARE = 3
"""The number of signs of life in one `WatchdogSec`: two may be late before systemd ends the process."""


class ServiceManager:
    """The notification socket of this process. Its methods may be called from any thread, and raise nothing."""

    def __init__(self, environment: Mapping[str, str] | None = None, pid: int | None = None) -> None:
        environment = os.environ if environment is None else environment
        path = environment.get("NOTIFY_SOCKET", "")
        # A leading @ stands for the zero byte of an abstract address. Other kinds of address, as vsock:, are not for us.
        self._address = "\0" + path[1:] if path.startswith("@") else path if path.startswith("/") else ""
        self.watchdog_s = _watchdog_s(environment, os.getpid() if pid is None else pid) if self._address else None
        """The seconds after which silence counts as death; None when nobody watches."""
        self._is_ready, self._next_sign_at = False, 0.0

    def ready(self, status: str) -> None:
        self._tell(f"READY=1\nSTATUS={status}")

    def stopping(self) -> None:
        self._tell("STOPPING=1")

    def alive(self) -> None:
        if self.watchdog_s is not None:
            self._tell("WATCHDOG=1")

    async def keep_alive(self, clock: Clock) -> None:
        """Sends signs of life from the event loop that calls it, for as long as the loop turns."""
        while self.watchdog_s is not None:
            self.alive()
            await clock.async_sleep(self.watchdog_s / _SHARE)

    def turned(self, now: float, *, ready: bool) -> None:
        """Called by a supervisor at each turn of its loop: says once that it is ready, and often enough that it lives."""
        if ready and not self._is_ready:
            self._is_ready = True
            self.ready("serves")
        if self.watchdog_s is not None and now >= self._next_sign_at:
            self._next_sign_at = now + self.watchdog_s / _SHARE
            self.alive()

    def _tell(self, text: str) -> None:
        if not self._address:
            return
        # A service manager that is gone, or whose queue is full, must not disturb the node.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.setblocking(False)
            channel.sendto(text.encode(), self._address)


def _watchdog_s(environment: Mapping[str, str], pid: int) -> float | None:
    """Returns the time of the watchdog that systemd set for this very process, or None."""
    try:
        micros = int(environment.get("WATCHDOG_USEC", "0"))
        watched = int(environment.get("WATCHDOG_PID", str(pid)))
    except ValueError:
        return None
    return micros / 1e6 if micros > 0 and watched == pid else None
