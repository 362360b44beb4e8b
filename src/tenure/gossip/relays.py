"""Asking on behalf of others: pings that we send because somebody else got no answer."""

from __future__ import annotations

import heapq

from tenure.gossip.messages import Ack, Address, IndirectPing, Nack, Ping
from tenure.gossip.pool import Pool

MAX_RELAYS = 1024
"""More at once than this is a flood, or a pool that has other troubles."""


class _Relay:
    __slots__ = ("answer_to", "asked_seq", "expires", "nack", "nack_at")

    def __init__(self, asked_seq: int, answer_to: Address, nack: bool, nack_at: float, expires: float) -> None:
        self.asked_seq, self.answer_to, self.nack = asked_seq, answer_to, nack
        self.nack_at, self.expires = nack_at, expires


class Relays:
    """Each remembers for whom it was sent, and says either that an answer came or, in good time, that none did."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._open: dict[int, _Relay] = {}
        self._due: list[tuple[float, int]] = []

    @property
    def next_due(self) -> float:
        return self._due[0][0] if self._due else float("inf")

    def ask(self, now: float, source: Address, request: IndirectPing) -> None:
        """Ping the target for somebody else."""
        pool = self._pool
        if len(self._open) >= MAX_RELAYS:
            pool.counters.relays_refused += 1
            return
        pool.counters.relays += 1
        seq = pool.next_sequence()
        nack_at = now + pool.settings.nack_after_s
        relay = _Relay(
            request.seq, request.source or source, request.nack, nack_at, now + pool.settings.probe_interval_s
        )
        self._open[seq] = relay
        heapq.heappush(self._due, (nack_at if request.nack else relay.expires, seq))
        ping = Ping(seq, request.node, pool.me.address, pool.me.name)
        pool.send(request.target, ping, pool.roster.get(request.node))

    def ack(self, ack: Ack) -> bool:
        """True when it answers a ping that we sent for somebody."""
        relay = self._open.pop(ack.seq, None)
        if relay is None:
            return False
        self._pool.counters.relays_answered += 1
        self._pool.send(relay.answer_to, Ack(relay.asked_seq))
        return True

    def tick(self, now: float) -> None:
        """Tell those who wait that there was no answer; forget what is over."""
        while self._due and self._due[0][0] <= now:
            _, seq = heapq.heappop(self._due)
            relay = self._open.get(seq)
            if relay is None:
                continue
            if relay.nack:
                relay.nack = False
                self._pool.counters.nacks_sent += 1
                self._pool.send(relay.answer_to, Nack(relay.asked_seq))
            if now >= relay.expires:
                del self._open[seq]
            else:  # an answer that comes late is still passed on
                heapq.heappush(self._due, (relay.expires, seq))

    def delay(self, seconds: float) -> None:
        """We were not listening for so long."""
        for relay in self._open.values():
            relay.nack_at += seconds
            relay.expires += seconds
        self._due = [(relay.nack_at if relay.nack else relay.expires, seq) for seq, relay in self._open.items()]
        heapq.heapify(self._due)
