"""Bounds what peers can make a node do: messages in a second, from each address and from all, and large states merged in steps.

Nobody can keep a stranger from sending. So no datagram and no state costs more than its share of the event loop, which also serves HTTP, renews
the leadership and hears the workers.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence

from tenure.clock import Clock
from tenure.errors import WireError
from tenure.gossip.messages import Address, Message, PushPull
from tenure.gossip.sealing import PacketCodec
from tenure.gossip.settings import GossipSettings
from tenure.gossip.state import Counters
from tenure.gossip.wire import decode, encode_push_pull

MAX_SOURCES = 512
"""Addresses whose messages are counted apart. The one that was silent for longest makes room."""
EACH_SHARE = 3
"""One address may use a third of all messages, so that a flood from it leaves room for the others."""
MERGE_STEP = 64
"""Lines of a state that are merged at once, in about 3 ms."""
MERGE_PAUSE_S = 0.02
"""Between two steps the loop is free for so long: merging takes at most a seventh of it, and some 2,800 lines a second."""
MAX_WAITING_STATES = 4
"""Large states of peers that wait for their turn. A further one is refused: its sender asks again, as the next push/pull does."""


LARGE_STATE = 1_000
KEEP_ANSWER_S = 1.0


class _Bucket:
    """Holds the messages that may still be taken. It fills with time, up to one second's worth."""

    __slots__ = ("at", "left")

    def __init__(self, now: float, left: float) -> None:
        self.at, self.left = now, left

    def take(self, now: float, wanted: int, per_s: float) -> int:
        """Returns how many of the wanted messages are taken."""
        self.left = min(per_s, self.left + (now - self.at) * per_s)
        self.at = now
        taken = min(wanted, int(self.left))
        self.left -= taken
        return taken


class MessageBudget:
    """Counts the messages of datagrams. Beyond its bounds a message is dropped before it is decoded."""

    def __init__(self, per_s: int) -> None:
        self._per_s = per_s
        self._all = _Bucket(0.0, per_s)
        self._each: OrderedDict[Address, _Bucket] = OrderedDict()

    def admit(self, now: float, source: Address, parts: Sequence[bytes]) -> Sequence[bytes]:
        """Returns the messages of a datagram that are taken: the first ones, while there is room."""
        each_s = self._per_s / EACH_SHARE
        bucket = self._each.get(source)
        if bucket is None:
            bucket = self._each[source] = _Bucket(now, each_s)
            if len(self._each) > MAX_SOURCES:
                self._each.popitem(last=False)
        self._each.move_to_end(source)
        allowed = bucket.take(now, len(parts), each_s)
        return parts[: self._all.take(now, allowed, self._per_s)]


class PacketIntake:
    """Opens the datagrams that reach a node, and counts them."""

    def __init__(self, codec: PacketCodec, settings: GossipSettings, counters: Counters) -> None:
        self._codec, self._most_bytes, self._counters = codec, settings.largest_datagram_bytes, counters
        self._budget = MessageBudget(settings.messages_per_s)

    def messages(self, now: float, source: Address, data: bytes) -> list[Message]:
        """Returns the messages of a datagram. Raises `WireError`, also for one that is too large: it is not even opened, because opening may
        decompress."""
        counters = self._counters
        counters.packets_received += 1
        counters.bytes_received += len(data)
        if len(data) > self._most_bytes:
            raise WireError(f"it has {len(data)} bytes; at most {self._most_bytes} are allowed")
        parts = self._codec.open(data)
        admitted = self._budget.admit(now, source, parts)
        counters.messages_refused += len(parts) - len(admitted)
        return [decode(part) for part in admitted]


class StateAnswers:
    """Encodes the answers to push/pulls. A large one is kept for a second: encoding ten thousand members takes 0.1 s, and anybody may ask."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept = b""
        self._kept_until = float("-inf")

    def encode(self, state: PushPull) -> bytes:
        """Returns the bytes of the state, or those of a large state that was asked for less than a second ago."""
        if len(state.nodes) <= LARGE_STATE:
            return encode_push_pull(state)
        now = self._clock.monotonic()
        if now >= self._kept_until:
            self._kept, self._kept_until = encode_push_pull(state), now + KEEP_ANSWER_S
        return self._kept


class StateMerger:
    """Merges the states of push/pulls. A large one is merged in steps, with pauses, and one at a time."""

    def __init__(self, merge: Callable[[PushPull], None], clock: Clock, counters: Counters) -> None:
        self._merge, self._clock, self._counters = merge, clock, counters
        self._turn = asyncio.Lock()
        self._waiting: set[asyncio.Task[None]] = set()

    def take(self, state: PushPull) -> None:
        """Merges a small state now, and a large one in the background."""
        if len(state.nodes) <= MERGE_STEP:
            self._merge(state)
        elif len(self._waiting) >= MAX_WAITING_STATES:
            self._counters.states_refused += 1
        else:
            task = asyncio.get_running_loop().create_task(self.merged(state))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)

    async def merged(self, state: PushPull) -> None:
        """Merges the state, and returns when all of it is merged."""
        lines = state.nodes
        if len(lines) <= MERGE_STEP:
            self._merge(state)
            return
        async with self._turn:
            for start in range(0, len(lines), MERGE_STEP):
                first = start == 0  # the user state and the skipped lines count once
                part = PushPull(
                    lines[start : start + MERGE_STEP],
                    state.join,
                    state.user_state if first else b"",
                    state.skipped if first else 0,
                )
                self._merge(part)
                await self._clock.async_sleep(MERGE_PAUSE_S)

    async def close(self) -> None:
        """Ends the states that are being merged."""
        for task in self._waiting:
            task.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)
