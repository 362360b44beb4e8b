"""The probes that an orchestrator sends to a worker: alive, ready, and the numbers (document 004).

The answers come from their own thread and need neither the engine nor the work, so that a busy worker is not restarted for being busy. The
liveness probe says only that the process answers; ending one that is stuck is the watchdog's part.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec

from tenure.beat.metrics import render_metrics
from tenure.beat.probe_server import ProbeAnswer, ProbeServer
from tenure.beat.watchdog import Readiness
from tenure.clock import Clock, SystemClock

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

LIVE, READY, METRICS = "/health/live", "/health/ready", "/metrics"

_ALIVE = ProbeAnswer(HTTPStatus.OK, b'{"alive":true}\n')
_NOT_FOUND = ProbeAnswer(HTTPStatus.NOT_FOUND, f'{{"paths":["{LIVE}","{READY}","{METRICS}"]}}\n'.encode())


class HealthServer:
    """Serves `/health/live`, `/health/ready` and `/metrics`.

    `readiness` is asked for each `/health/ready`; True and False will do. One that raises, or does not answer, is a 503.
    """

    def __init__(
        self,
        port: int = 8080,
        *,
        readiness: Callable[[], Readiness | bool] = lambda: True,
        host: str = "",
        registry: CollectorRegistry | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.host, self.port = host, port
        self._readiness = readiness
        self._registry = registry
        self._clock = clock or SystemClock()
        self._server: ProbeServer | None = None

    @property
    def running(self) -> bool:
        return self._server is not None and self._server.running

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port while it runs: with port 0, the one that was free."""
        return self._server.address if self._server is not None else None

    def start(self) -> tuple[str, int]:
        """Listen and serve. Raises `PortTakenError`, and then nothing runs."""
        if self._server is None:
            server = ProbeServer(
                self._answer,
                at_once={LIVE: _ALIVE},
                host=self.host,
                port=self.port,
                clock=self._clock,
                what="health probes",
            )
            server.start()
            self._server = server
        return self._server.address

    def stop(self) -> None:
        """Stop serving and free the port. It can be started again."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _answer(self, path: str) -> ProbeAnswer:
        if path == READY:
            return self._ready()
        if path == METRICS:
            body, content_type = render_metrics(self._registry, self._vitals())
            return ProbeAnswer(HTTPStatus.OK, body, content_type)
        return _NOT_FOUND

    def _ready(self) -> ProbeAnswer:
        try:
            verdict = self._readiness()
        except Exception as error:
            # The check is the user's or ours: in both cases "cannot tell" means that no work should come here.
            verdict = Readiness(False, {"-": f"the readiness check failed: {type(error).__name__}: {error}"})
        if not isinstance(verdict, Readiness):
            verdict = Readiness(bool(verdict), {} if verdict else {"-": "the readiness check says no"})
        status = HTTPStatus.OK if verdict.ready else HTTPStatus.SERVICE_UNAVAILABLE
        return ProbeAnswer(status, msgspec.json.encode(verdict.as_json()) + b"\n")

    def _vitals(self) -> Readiness | None:
        try:
            verdict = self._readiness()
        except Exception:
            return None  # the counters are worth having without it; /health/ready says what is wrong
        return verdict if isinstance(verdict, Readiness) else None
