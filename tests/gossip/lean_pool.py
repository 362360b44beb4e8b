"""A pool of bare state machines in virtual time: for statistics over many nodes, where the full simulator is too heavy.

Messages go through their bytes. Datagrams are lost, delayed and overtake each other; streams are delayed instead. A node can
be killed, paused (its process stopped) or blocked (it runs, but what it sends and receives is held back, as in the
Lifeguard paper's experiments).
"""

from __future__ import annotations

import heapq
import itertools
from random import Random

from tenure.gossip.messages import Address, Ping
from tenure.gossip.settings import GossipSettings
from tenure.gossip.state import Effects, Event, MemberChange, MemberEvent, Packet, PushPullExchange, StreamPing
from tenure.gossip.swim import Swim
from tenure.gossip.wire import decode, encode_push_pull

DELAY_S = (0.0002, 0.002)
RETRANSMIT_S = 0.2


class LeanNode:
    def __init__(self, swim: Swim) -> None:
        self.swim = swim
        self.up = True
        self.paused_since: float | None = None
        self.blocked_until = 0.0
        self.armed = float("inf")
        self.held: list[tuple[Address, list[bytes]]] = []
        self.packets = self.bytes = self.stream_bytes = 0


class LeanPool:
    """`run` lets time pass; `seen` holds every event, with its time and who saw it."""

    def __init__(
        self,
        count: int,
        settings: GossipSettings | None = None,
        *,
        seed: int = 1,
        loss: float = 0.0,
        stream_loss: float | None = None,
        acquainted: bool = True,
    ) -> None:
        self.settings = settings or GossipSettings.lan()
        self.random = Random(seed)
        self.loss, self.stream_loss = loss, loss if stream_loss is None else stream_loss
        self.now = 0.0
        self.seen: list[tuple[float, str, Event]] = []
        self.nodes: dict[str, LeanNode] = {}
        self.cut: set[frozenset[str]] = set()
        self.slow: dict[str, float] = {}  # what a node's own slowness adds to each crossing
        self._at: dict[Address, str] = {}
        self._heap: list[tuple[float, int, object, tuple]] = []
        self._ties = itertools.count()
        for index in range(count):
            self.add(f"n{index}", (f"10.0.{index // 250}.{index % 250}", 7946))
        if acquainted:
            self.acquaint()

    def add(self, name: str, address: Address, *, incarnation: int = 100, start_id: str = "s1", **more) -> LeanNode:
        swim = Swim(
            name,
            address,
            self.settings,
            now=self.now,
            incarnation=incarnation,
            start_id=start_id,
            random=Random(self.random.random()),
            **more,
        )
        node = self.nodes[name] = LeanNode(swim)
        self._at[address] = name
        self._arm(name)
        return node

    def acquaint(self) -> None:
        """Everybody knows everybody, and nobody has anything to tell."""
        lines = [node.swim.state() for node in self.nodes.values()]
        for node in self.nodes.values():
            for state in lines:
                node.swim.merge(self.now, state)
        for name, node in self.nodes.items():
            node.swim.forget_rumours()
            self._arm(name)

    # -- what is done to nodes ----------------------------------------------------------------------------------

    def kill(self, name: str) -> None:
        self.nodes[name].up = False

    def pause(self, name: str, seconds: float) -> None:
        self.nodes[name].paused_since = self.now
        self._push(self.now + seconds, self._resume, name)

    def block(self, name: str, seconds: float) -> None:
        self.nodes[name].blocked_until = self.now + seconds
        self._push(self.now + seconds, self._unblock, name)

    def later(self, seconds: float, action, *args) -> None:
        self._push(self.now + seconds, action, *args)

    def join(self, name: str, to: str) -> None:
        state = self.nodes[name].swim.state(join=True)
        self._exchange(name, PushPullExchange(self.nodes[to].swim.me.address, state))

    # -- time -----------------------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, action, args = heapq.heappop(heap)
            action(*args)
        self.now = until

    def run_until(self, condition, most: float) -> float:
        """How long it took; fails when it never came."""
        begun = self.now
        while not condition():
            if self.now - begun > most:
                raise AssertionError(f"not within {most} s")
            self.run(0.05)
        return self.now - begun

    def _push(self, at: float, action, *args) -> None:
        heapq.heappush(self._heap, (at, next(self._ties), action, args))

    def _arm(self, name: str) -> None:
        node = self.nodes[name]
        due = max(self.now, node.swim.next_due)
        if due < node.armed:
            node.armed = due
            self._push(due, self._tick, name, due)

    def _tick(self, name: str, due: float) -> None:
        node = self.nodes[name]
        if node.armed != due or not node.up or node.paused_since is not None:
            return
        node.armed = float("inf")
        self.perform(name, node.swim.tick(self.now))

    def _resume(self, name: str) -> None:
        node = self.nodes[name]
        if not node.up:
            return
        lag = self.now - max(node.paused_since or self.now, min(node.armed, self.now))
        node.paused_since, node.armed = None, float("inf")
        if lag > self.settings.lag_tolerance_s:
            self.perform(name, node.swim.lagged(self.now, lag))
        self.perform(name, node.swim.tick(self.now))
        self._release(name)

    def _unblock(self, name: str) -> None:
        if self.nodes[name].blocked_until <= self.now:
            self._release(name)

    def _release(self, name: str) -> None:
        node = self.nodes[name]
        held, node.held = node.held, []
        for source, parts in held:
            self._take(name, source, parts)

    # -- the network ------------------------------------------------------------------------------------------------

    def perform(self, name: str, outcome: Effects) -> None:
        for packet in outcome.packets:
            self._send(name, packet)
        for ping in outcome.stream_pings:
            self._stream_ping(name, ping)
        for exchange in outcome.exchanges:
            self._exchange(name, exchange)
        for event in outcome.events:
            self.seen.append((self.now, name, event))
        self._arm(name)

    def _delay(self) -> float:
        return DELAY_S[0] + (DELAY_S[1] - DELAY_S[0]) * self.random.random()

    def _stream_delay(self) -> float:
        delay, wait = self._delay(), RETRANSMIT_S
        while self.stream_loss and self.random.random() < self.stream_loss and wait < 30:
            delay += wait
            wait *= 2
        return delay

    def _slowness(self, one: str, other: str) -> float:
        return self.slow.get(one, 0.0) + self.slow.get(other, 0.0) if self.slow else 0.0

    def connected(self, one: str, other: str) -> bool:
        return not self.cut or frozenset((one, other)) not in self.cut

    def _send(self, name: str, packet: Packet) -> None:
        node = self.nodes[name]
        node.packets += 1
        node.bytes += sum(map(len, packet.parts)) + 2 * len(packet.parts) + 8
        target = self._at.get(packet.to)
        if target is None or not self.connected(name, target) or self.random.random() < self.loss:
            return
        at = max(self.now, node.blocked_until) + self._delay() + self._slowness(name, target)
        self._push(at, self._deliver, target, node.swim.me.address, packet.parts)

    def _deliver(self, target: str, source: Address, parts: list[bytes]) -> None:
        node = self.nodes[target]
        if not node.up:
            return
        if node.paused_since is not None or node.blocked_until > self.now:
            node.held.append((source, parts))
        else:
            self._take(target, source, parts)

    def _take(self, name: str, source: Address, parts: list[bytes]) -> None:
        swim = self.nodes[name].swim
        for part in parts:
            self.perform(name, swim.receive(self.now, source, decode(part)))

    def _responsive(self, name: str) -> bool:
        node = self.nodes[name]
        return node.up and node.paused_since is None and node.blocked_until <= self.now

    def _stream_ping(self, name: str, ask: StreamPing) -> None:
        target = self._at.get(ask.to)
        if target is None or not self.connected(name, target) or not self._responsive(name):
            return
        delay = self._stream_delay() + self._slowness(name, target)
        self._push(self.now + delay, self._stream_pinged, name, target, ask.ping)

    def _stream_pinged(self, name: str, target: str, ping: Ping) -> None:
        if self._responsive(target) and self.nodes[target].swim.answer_to(self.now, ping) is not None:
            delay = self._stream_delay() + self._slowness(name, target)
            self._push(self.now + delay, self._stream_answered, name, ping.seq)

    def _stream_answered(self, name: str, seq: int) -> None:
        if self._responsive(name):
            self.perform(name, self.nodes[name].swim.stream_answered(self.now, seq))

    def _exchange(self, name: str, exchange: PushPullExchange) -> None:
        target = self._at.get(exchange.to)
        if target is None or not self.connected(name, target) or not self._responsive(name):
            return
        self.nodes[name].stream_bytes += len(encode_push_pull(exchange.state))
        self._push(self.now + self._stream_delay(), self._exchanged, name, target, exchange.state)

    def _exchanged(self, name: str, target: str, state) -> None:
        if not self._responsive(target):
            return
        reply = self.nodes[target].swim.answer_state(state)
        self.nodes[target].stream_bytes += len(encode_push_pull(reply))
        self.perform(target, self.nodes[target].swim.merge(self.now, state))
        self._push(self.now + self._stream_delay(), self._exchange_answered, name, reply)

    def _exchange_answered(self, name: str, reply) -> None:
        if self._responsive(name):
            self.perform(name, self.nodes[name].swim.merge(self.now, reply))

    # -- what was seen ----------------------------------------------------------------------------------------------

    def events(self, what: MemberChange, about: str | None = None) -> list[tuple[float, str, MemberEvent]]:
        return [
            (at, by, event)
            for at, by, event in self.seen
            if isinstance(event, MemberEvent) and event.change is what and (about is None or event.node == about)
        ]

    def state_of(self, name: str, seen_by: str) -> str:
        member = self.nodes[seen_by].swim.member(name)
        return member.state.name.lower() if member else "unknown"

    def all_believe(self, name: str, state: str) -> bool:
        return all(
            self.state_of(name, other) == state for other, node in self.nodes.items() if node.up and other != name
        )
