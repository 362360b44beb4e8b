"""Probes of other nodes, made for wide-area latency: each address by itself, late answers count, and a miss is only a miss."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from tenure.clock import Clock
from tenure.errors import NodeUnavailableError
from tenure.health.signals import HealthConfig
from tenure.jobs.settings import check_positive
from tenure.nodes.calling.awaiting import AsyncCaller
from tenure.nodes.messages.wire import Reply, Request
from tenure.randomness import Random

ViewT = TypeVar("ViewT", bound=Reply)
_LATENCY_WEIGHT = 0.2  # of a new round trip in the average: about five of them


class ProbeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How often a node is asked, how long it may take, and how long it may be silent."""

    interval_s: float = 2.0
    timeout_s: float = 5.0
    suspicion_s: float = 30.0

    def __post_init__(self) -> None:
        for field in ("interval_s", "timeout_s", "suspicion_s"):
            check_positive(field, getattr(self, field))

    @property
    def health(self) -> HealthConfig:
        """Silence for the suspicion time is what counts; as many misses as fit into it say the same of probes that were slow to fail."""
        misses = max(3, round(self.suspicion_s / min(self.timeout_s, self.interval_s)))
        return HealthConfig(liveness_timeout_s=self.suspicion_s, max_liveness_failures=misses)


class Probed(Generic[ViewT]):
    """What is known of one node."""

    def __init__(self, address: str, begun_at: float) -> None:
        self.address = address
        self.heard_at = begun_at
        """When it last answered; before its first answer, when we began to ask."""
        self.misses = 0
        self.missed_at = float("-inf")
        """When the last probe that was missed had been sent."""
        self.latency_s = 0.0
        self.view: ViewT | None = None
        self.error = ""

    @property
    def known(self) -> bool:
        return self.view is not None


class Prober(Generic[ViewT]):
    """Asks each address on a cadence. `on_word` after every answer and every miss."""

    def __init__(
        self,
        caller: AsyncCaller,
        addresses: Sequence[str],
        request: Request,
        kind: type[ViewT],
        *,
        settings: ProbeSettings,
        clock: Clock,
        random: Random,
        on_word: Callable[[Probed[ViewT], bool], None],
    ) -> None:
        self._caller, self._request, self._kind, self._settings = caller, request, kind, settings
        self._clock, self._random, self._on_word = clock, random, on_word
        self.nodes = {address: Probed[ViewT](address, clock.monotonic()) for address in addresses}

    async def run(self) -> None:
        """Until cancelled."""
        tasks = [asyncio.create_task(self._watch(node)) for node in self.nodes.values()]
        try:
            await asyncio.gather(*tasks)
            await asyncio.Event().wait()  # nobody to ask
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, node: Probed[ViewT]) -> None:
        while True:
            asked = self._clock.monotonic()
            reply: Any = None
            try:
                reply = await self._caller.ask(node.address, self._request, self._settings.timeout_s)
            except NodeUnavailableError as error:
                node.error = error.fact
            now = self._clock.monotonic()
            if isinstance(reply, self._kind):
                took = now - asked
                weight = _LATENCY_WEIGHT if node.known else 1.0
                node.latency_s += (took - node.latency_s) * weight
                node.view, node.heard_at, node.misses, node.error = reply, now, 0, ""
            else:
                node.misses += 1
                node.missed_at = asked
                node.error = node.error or f"answered {type(reply).__name__}"
            self._on_word(node, node.misses == 0)
            # Spread, so that many gates do not ask one manager at one moment.
            rest = self._settings.interval_s * self._random.uniform(0.9, 1.1) - (now - asked)
            await self._clock.async_sleep(max(0.1 * self._settings.interval_s, rest))
