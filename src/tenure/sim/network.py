"""A network in which each datagram and each leg of a request has a fate that the seed decides.

Decides what is lost, delayed, doubled, overtaken or cut off; knows nothing of what is in it. `NetworkLink` says how a pair of
endpoints behaves when nothing is wrong; faults add to it, for all or some endpoints, and take away what they added.
"""

from __future__ import annotations

import contextvars
import copy
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tenure.errors import LimitError
from tenure.randomness import Random
from tenure.sim.kernel import Kernel, SimTimer, Trace, to_ticks
from tenure.sim.loop import SimLoop

if TYPE_CHECKING:
    from tenure.sim.endpoint import Exchange, Transport

ENGINE = "engine"
"""The endpoint at which the engine is reached: partitions and disturbances may name it."""


@dataclass(frozen=True, slots=True)
class NetworkLink:
    """How one direction between two endpoints behaves."""

    delay_s: tuple[float, float] = (0.0005, 0.005)
    """Each crossing takes a time between these, so datagrams overtake each other by as much."""
    loss: float = 0.0
    """The share of datagrams that vanish. Requests are delayed instead, as TCP sends again."""
    duplicate: float = 0.0
    reorder: float = 0.0
    """The share of datagrams that are held back by up to twenty times the usual delay."""
    break_before: float = 0.0
    """The share of requests whose connection breaks before they arrive."""
    break_after: float = 0.0
    """The share of requests that were answered, and the answer was lost with the connection."""

    def __post_init__(self) -> None:
        low, high = self.delay_s
        if not 0 <= low <= high:
            raise LimitError("delay_s", self.delay_s, "two numbers of seconds, the smaller first")
        for field in ("loss", "duplicate", "reorder", "break_before", "break_after"):
            if not 0 <= getattr(self, field) <= 1:
                raise LimitError(field, getattr(self, field), "between 0 and 1")

    def worse_by(self, other: NetworkLink) -> NetworkLink:
        """Both disturbances at once: delays add up, chances combine."""

        def either(a: float, b: float) -> float:
            return 1 - (1 - a) * (1 - b)

        return NetworkLink(
            delay_s=(self.delay_s[0] + other.delay_s[0], self.delay_s[1] + other.delay_s[1]),
            loss=either(self.loss, other.loss),
            duplicate=either(self.duplicate, other.duplicate),
            reorder=either(self.reorder, other.reorder),
            break_before=either(self.break_before, other.break_before),
            break_after=either(self.break_after, other.break_after),
        )


class Disturbance(NamedTuple):
    """Something that makes links worse: those that touch one of these endpoints, or all when there are none."""

    endpoints: tuple[str, ...]
    effect: NetworkLink


class NetworkCut(NamedTuple):
    """Nothing passes from any of `sources` to any of `targets`."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]


RETRANSMIT_S = 0.2
"""The delay that one lost segment adds to a request, doubled for each further one: Linux's smallest retransmission timeout."""


class Network:
    """Carries datagrams and requests between named endpoints."""

    def __init__(
        self,
        kernel: Kernel,
        root: SimLoop,
        trace: Trace,
        random: Callable[[str], Random],
        link: NetworkLink | None = None,
    ) -> None:
        self.default = link or NetworkLink()
        self.sent = Counter[str]()
        """Counts the datagrams that were sent, lost, cut and doubled, and their bytes."""
        self._kernel, self._root, self._trace, self._random = kernel, root, trace, random
        self._context = contextvars.Context()
        self._bound: dict[str, Transport] = {}
        self._overrides: dict[tuple[str, str], NetworkLink] = {}
        self._disturbances: list[Disturbance] = []
        self._cuts: list[NetworkCut] = []
        self._links: dict[tuple[str, str], NetworkLink] = {}
        self._streams: dict[str, Random] = {}

    # What is wrong with it

    def set_link(self, source: str, target: str, link: NetworkLink | None) -> None:
        """Give one direction its own behaviour; None takes it back."""
        if link is None:
            self._overrides.pop((source, target), None)
        else:
            self._overrides[source, target] = link
        self._links.clear()

    def disturb(self, disturbance: Disturbance) -> None:
        self._disturbances.append(disturbance)
        self._links.clear()

    def calm(self, disturbance: Disturbance) -> None:
        self._disturbances.remove(disturbance)
        self._links.clear()

    def cut(self, cut: NetworkCut) -> None:
        """Partition one way; cut both ways with `partition`."""
        self._cuts.append(cut)

    def mend(self, cut: NetworkCut) -> None:
        self._cuts.remove(cut)

    def partition(self, one: Iterable[str], other: Iterable[str]) -> list[NetworkCut]:
        """NetworkCut two groups off from each other, both ways. Give each cut to `mend` to heal it."""
        left, right = tuple(one), tuple(other)
        cuts = [NetworkCut(left, right), NetworkCut(right, left)]
        for cut in cuts:
            self.cut(cut)
        return cuts

    def reachable(self, source: str, target: str) -> bool:
        """Returns True when a message that is sent now could arrive."""
        return not self._cuts or not any(source in cut.sources and target in cut.targets for cut in self._cuts)

    def link(self, source: str, target: str) -> NetworkLink:
        """Returns how this direction behaves now."""
        found = self._links.get((source, target))
        if found is None:
            found = self._overrides.get((source, target), self.default)
            for endpoints, effect in self._disturbances:
                if not endpoints or source in endpoints or target in endpoints:
                    found = found.worse_by(effect)
            self._links[source, target] = found
        return found

    # Endpoints

    def bind(self, transport: Transport) -> None:
        self._bound[transport.address] = transport

    def unbind(self, transport: Transport) -> None:
        """Notes that the process is gone: its peers' open requests are reset, and later ones are refused."""
        if self._bound.get(transport.address) is transport:
            del self._bound[transport.address]
        for exchange in list(transport.serving):
            self.answer(exchange, error=ConnectionResetError(f"{transport.address} went away"))
        transport.serving.clear()

    def stream(self, source: str) -> Random:
        """Returns the random numbers of a sender. Each has its own, so that one node's traffic does not change another's luck."""
        found = self._streams.get(source)
        if found is None:
            found = self._streams[source] = self._random(f"network/{source}")
        return found

    def after(self, ticks: int, callback: Callable[..., object], *args: Any) -> SimTimer:
        """Call this later, in nobody's process. What comes back can be cancelled."""
        timer = SimTimer(0.0, callback, args, self._root, self._context)
        self._kernel.push(self._kernel.now + ticks, timer)
        timer._scheduled = True
        return timer

    # Datagrams

    def send(self, source: str, target: str, data: bytes) -> None:
        count = self.sent
        count["datagrams"] += 1
        count["bytes"] += len(data)
        if not self.reachable(source, target):
            count["cut"] += 1
            self._trace.note(self._kernel.now, source, f"datagram to {target} cut")
            return
        link, random = self.link(source, target), self.stream(source)
        if link.loss and random.random() < link.loss:
            count["lost"] += 1
            self._trace.note(self._kernel.now, source, f"datagram to {target} lost")
            return
        self.after(self._delay(link, random), self._deliver, source, target, data)
        if link.duplicate and random.random() < link.duplicate:
            count["doubled"] += 1
            self.after(self._delay(link, random), self._deliver, source, target, data)

    def _delay(self, link: NetworkLink, random: Random) -> int:
        low, high = link.delay_s
        delay = low + (high - low) * random.random()
        if link.reorder and random.random() < link.reorder:
            delay += 20 * high * random.random()
        return to_ticks(delay)

    def _deliver(self, source: str, target: str, data: bytes) -> None:
        transport = self._bound.get(target)
        if transport is None or not self.reachable(source, target):
            self._trace.note(self._kernel.now, target, f"datagram from {source} found nobody")
            return
        self._trace.note(self._kernel.now, target, f"datagram from {source}, {len(data)} bytes")
        transport.deliver(source, data)

    # Requests

    def ask(self, exchange: Exchange) -> None:
        """Send a request on its way."""
        source, target = exchange.source.address, exchange.target
        self.sent["requests"] += 1
        if not self.reachable(source, target):
            self._trace.note(self._kernel.now, source, f"request to {target} cut")
            return  # it times out, as a black hole does
        link, random = self.link(source, target), self.stream(source)
        delay = self._reliable_delay(link, random)
        if link.break_before and random.random() < link.break_before:
            self._trace.note(self._kernel.now, source, f"request to {target} broke before it arrived")
            self.after(delay, exchange.fail, ConnectionResetError(f"the connection to {target} broke"))
            return
        self.after(delay, self._arrive, exchange)
        if link.duplicate and random.random() < link.duplicate:
            # Somebody on the way sent it again. Both are handled; whoever asked takes the first answer.
            self.sent["doubled"] += 1
            self.after(self._reliable_delay(link, random), self._arrive, exchange.again())

    def _reliable_delay(self, link: NetworkLink, random: Random) -> int:
        low, high = link.delay_s
        delay, wait = low + (high - low) * random.random(), RETRANSMIT_S
        while link.loss and wait < 60 and random.random() < link.loss:
            delay += wait
            wait *= 2
        return to_ticks(delay)

    def _arrive(self, exchange: Exchange) -> None:
        source, target = exchange.source.address, exchange.target
        if not self.reachable(source, target):
            self._trace.note(self._kernel.now, target, f"request from {source} cut")
            return
        transport = self._bound.get(target)
        if transport is None or not transport.serves:
            self._trace.note(self._kernel.now, target, f"request from {source} refused")
            self.answer(exchange, error=ConnectionRefusedError(f"nobody answers at {target}"))
            return
        self._trace.note(self._kernel.now, target, f"request from {source}")
        transport.begin(exchange)

    def hang_up(self, exchange: Exchange) -> None:
        """Notes that the caller has closed the connection. The other end learns of it, unless nothing passes."""
        source, target = exchange.source.address, exchange.target
        if exchange.source.loop.dead or not self.reachable(source, target):
            return
        self.after(self._reliable_delay(self.link(source, target), self.stream(source)), self._hung_up, exchange)

    def _hung_up(self, exchange: Exchange) -> None:
        transport = self._bound.get(exchange.target)
        if transport is not None and exchange in transport.serving:
            self._trace.note(self._kernel.now, exchange.target, f"{exchange.source.address} hung up")
            transport.hung_up(exchange)

    def answer(self, exchange: Exchange, reply: Any = None, error: Exception | None = None) -> None:
        """Send the reply on its way back."""
        source, target = exchange.source.address, exchange.target
        if not self.reachable(target, source):
            self._trace.note(self._kernel.now, target, f"reply to {source} cut")
            return
        link, random = self.link(target, source), self.stream(target)
        delay = self._reliable_delay(link, random)
        if error is not None:
            self.after(delay, exchange.fail, error)
        elif link.break_after and random.random() < link.break_after:
            self._trace.note(self._kernel.now, target, f"reply to {source} lost")
            self.after(delay, exchange.fail, ConnectionResetError(f"the connection to {target} broke"))
        else:
            self.after(delay, exchange.succeed, reply)


_ATOMS = (bytes, str, int, float, bool, type(None))


def copied(message: Any) -> Any:
    """Copies a message for its receiver: as on a real wire, two processes share nothing but bytes and text."""
    return message if isinstance(message, _ATOMS) else copy.deepcopy(message)
