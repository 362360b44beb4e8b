"""Probes other nodes, with wide-area latency in mind: it asks each address on its own cadence, and draws no conclusion from one miss."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from tenure.clock import Clock
from tenure.control.async_caller import AsyncCaller
from tenure.control.messages.wire import Problem, Reply, Request
from tenure.errors import NodeUnavailableError, UntrustedPeerError
from tenure.health.signals import HealthConfig
from tenure.jobs.settings import check_positive
from tenure.logs import NodeLog
from tenure.nodes.loop_keeper import LoopKeeper
from tenure.randomness import Random

ViewT = TypeVar("ViewT", bound=Reply)
_LATENCY_WEIGHT = 0.2  # of a new round trip in the average: about five of them


class ProbeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The seconds between two probes of a node, for its answer, and of silence until it is suspected."""

    interval_s: float = 2.0
    timeout_s: float = 5.0
    suspicion_s: float = 30.0

    def __post_init__(self) -> None:
        for field in ("interval_s", "timeout_s", "suspicion_s"):
            check_positive(field, getattr(self, field))

    @property
    def health(self) -> HealthConfig:
        """The liveness rule for a probed node: silence for the suspicion time, or as many misses in a row as fit into it."""
        misses = max(3, round(self.suspicion_s / min(self.timeout_s, self.interval_s)))
        return HealthConfig(liveness_timeout_s=self.suspicion_s, max_liveness_failures=misses)


class ProbeTools(NamedTuple):
    """The things that every prober of a gate shares."""

    caller: AsyncCaller
    settings: ProbeSettings
    clock: Clock
    random: Random
    keeper: LoopKeeper
    """Keeps the loop of each probed node."""
    log: NodeLog


class Probed(Generic[ViewT]):
    """The answers and misses of one probed node."""

    def __init__(self, address: str, begun_at: float) -> None:
        self.address = address
        self.heard_at = begun_at
        """When the node last answered; before its first answer, when the prober began."""
        self.misses = 0
        self.missed_at = float("-inf")
        """When the prober sent the last probe that was missed. An answer to another request after that shows that the node is not silent."""
        self.latency_s = 0.0
        self.view: ViewT | None = None
        self.error = ""
        self.refused = ""
        """The reason why the node will refuse every probe: no token, no certificate, another kind of node. Empty otherwise."""

    @property
    def known(self) -> bool:
        return self.view is not None


class Prober(Generic[ViewT]):
    """Asks each address on a cadence. Calls `on_word` after every answer and every miss."""

    def __init__(
        self,
        tools: ProbeTools,
        addresses: Sequence[str],
        request: Request,
        kind: type[ViewT],
        on_word: Callable[[Probed[ViewT], bool], None],
    ) -> None:
        self._caller, self._settings, self._clock, self._random, self._keeper, self._log = tools
        self._request, self._kind, self._on_word = request, kind, on_word
        self.nodes = {address: Probed[ViewT](address, tools.clock.monotonic()) for address in addresses}

    async def run(self) -> None:
        """Probes until it is cancelled. An exception about one node stops the probes of no other node."""
        await self._keeper.keep_all(
            {f"probe {address}": partial(self._watch, node) for address, node in self.nodes.items()}
        )
        await asyncio.Event().wait()  # without an address there is no loop to wait for

    async def _watch(self, node: Probed[ViewT]) -> None:
        while True:
            asked = self._clock.monotonic()
            view = await self._ask(node)
            now = self._clock.monotonic()
            if view is not None:
                weight = _LATENCY_WEIGHT if node.known else 1.0
                node.latency_s += (now - asked - node.latency_s) * weight
                node.view, node.heard_at, node.misses, node.error = view, now, 0, ""
            else:
                node.misses += 1
                node.missed_at = asked
            self._on_word(node, node.misses == 0)
            # Random, so that many gates do not probe one manager at one moment.
            rest = self._settings.interval_s * self._random.uniform(0.9, 1.1) - (now - asked)
            await self._clock.async_sleep(max(0.1 * self._settings.interval_s, rest))

    async def _ask(self, node: Probed[ViewT]) -> ViewT | None:
        """Returns the node's view; None where it gave none, and then `error` holds the reason."""
        refused = ""
        try:
            reply: Any = await self._caller.ask(node.address, self._request, self._settings.timeout_s)
        except UntrustedPeerError as error:
            reply, node.error, refused = None, error.fact, str(error)
        except NodeUnavailableError as error:
            reply, node.error = None, error.fact
        if isinstance(reply, Problem):
            node.error = f"it answers: {reply.fact}"
            refused = "" if reply.retryable else f"{reply.fact}. {reply.remedy}"
        elif reply is not None and not isinstance(reply, self._kind):
            node.error = f"it answered {type(reply).__name__}"
        if refused and refused != node.refused:
            # Logged once: a wrong token or a missing certificate stays so until an operator mends it.
            self._log.warning(f"{node.address} does not answer to us: {refused}")
        node.refused = refused
        return reply if isinstance(reply, self._kind) else None
