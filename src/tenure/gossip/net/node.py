"""One member of a pool: the state machine with a clock, sockets and listeners around it.

Everything runs on one event loop, and nothing here may be called from another thread. The node decides nothing about members: it receives, asks `Swim`,
and performs the effects. It notices when its own event loop was late, and tells `Swim`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from tenure.clock import Clock, SystemClock
from tenure.errors import ConfigurationError, JoinError, WireError
from tenure.gossip.members import PoolMember
from tenure.gossip.messages import Ack, Address, Ping, PushPull, StreamRefusal, User
from tenure.gossip.net.admission import PacketIntake, StateAnswers, StateMerger
from tenure.gossip.net.transport import (
    EventListener,
    GossipListeners,
    GossipTransport,
    HealthListener,
    UdpTcpTransport,
    resolve,
)
from tenure.gossip.sealing import Keyring, PacketCodec
from tenure.gossip.settings import GossipSettings, format_address, parse_address, require_key
from tenure.gossip.state import Counters, Effects, PushPullExchange, Skew, StreamPing
from tenure.gossip.stream import StreamInbox, StreamMessage, seal_stream
from tenure.gossip.swim import Swim
from tenure.gossip.wire import encode, encode_push_pull
from tenure.health.node_states import HealthPiggyback
from tenure.randomness import IdSource, Random, fresh_random, new_id

log = logging.getLogger("tenure.gossip")

MAX_CONCURRENT_STREAMS = 32
LEAVE_WAIT_S = 5.0


class GossipNode:
    """A member of a pool. `async with` starts and closes it; `join` dials the seeds; `leave` tells the pool before `close`."""

    def __init__(
        self,
        name: str,
        *,
        bind: Address = ("127.0.0.1", 0),
        advertise: Address | None = None,
        settings: GossipSettings | None = None,
        tags: dict[str, str] | None = None,
        keyring: Keyring | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        ids: IdSource = new_id,
        transport: GossipTransport | None = None,
    ) -> None:
        self.name = name
        self.settings = settings or GossipSettings.lan()
        self.keyring = keyring
        self.counters = Counters()
        self._advertise = advertise
        self._tags = tags
        self._clock = clock or SystemClock()
        self._random = random or fresh_random()
        self._start_id = ids()[:8]
        self._codec = PacketCodec(label=self.settings.label, keyring=keyring, compression=self.settings.compression)
        if transport is None:
            require_key(bind, is_keyed=keyring is not None, no_key=self.settings.no_key)
        self._transport = transport or UdpTcpTransport(bind)
        self._swim: Swim | None = None
        # One timer, for the next thing that `Swim` wants to do, and the time for which it is set.
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._streams = 0  # streams that this node opened and that are under way
        self._listeners = GossipListeners()
        self._intake = PacketIntake(self._codec, self.settings, self.counters)
        self._answers = StateAnswers(self._clock)
        self._merger = StateMerger(self._merge, self._clock, self.counters)
        self._closed = False

    async def start(self) -> None:
        """Starts to listen. The node is alone until `join`. Raises `ConfigurationError`."""
        if self._swim is not None:
            raise ConfigurationError("this gossip node was started before", remedy="Make a new one for each start")
        address = await self._transport.open(
            packets=self._on_packet,
            streams=self._on_stream,
            stream_failed=self._on_stream_failure,
            inbox=self._new_inbox,
            stream_timeout_s=self.settings.stream_timeout_s,
        )
        host, port = self._advertise or address
        if host in ("0.0.0.0", "::"):  # noqa: S104  compared with, not bound to
            await self._transport.close()
            raise ConfigurationError(
                f"gossip listens on {host}, which nobody can answer to", remedy="Give the address to advertise"
            )
        self._swim = Swim(
            self.name,
            (host, port or address[1]),
            self.settings,
            now=self._clock.monotonic(),
            # It is higher than in any former life unless the wall clock went back; then evidence of that life raises it.
            incarnation=int(self._clock.wall()),
            start_id=self._start_id,
            random=self._random,
            tags=self._tags,
            packet_overhead=self._codec.overhead_bytes,
            counters=self.counters,
            keyring=self.keyring,
        )
        self._arm()

    async def join(self, seeds: Iterable[str | Address]) -> int:
        """Exchanges everything that is known with each seed. Returns how many answered; raises `JoinError` when none did.

        The node remembers the seeds, and dials them again while they are not among the live members.
        """
        swim = self._running()
        addresses = [seed if isinstance(seed, tuple) else parse_address(seed) for seed in seeds]
        found = [address for seed in addresses for address in await resolve(seed) if address != swim.me.address]
        swim.seeds.add(found)
        joined, failures = 0, []
        for address in found:
            try:
                await self._push_pull(address, swim.state(join=True))
                joined += 1
            except (OSError, WireError, TimeoutError) as error:
                failures.append(f"{format_address(address)}: {error or type(error).__name__}")
        if not joined and addresses:
            raise JoinError("no seed let us in: " + ("; ".join(failures) or "none of their names is known"))
        return joined

    async def leave(self, *, timeout_s: float = LEAVE_WAIT_S) -> None:
        """Tells the pool that this node leaves, and waits until it was told, or for `timeout_s`. Call `close` afterwards."""
        swim = self._running()
        self._perform(swim.leave(self._clock.monotonic()))
        until = self._clock.monotonic() + timeout_s
        while swim.others_here and not swim.told_leaving and self._clock.monotonic() < until:
            await self._clock.async_sleep(self.settings.gossip_interval_s / 4)

    async def close(self) -> None:
        """Stops at once. To the others it looks like a crash: they suspect this node and then declare it dead."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._merger.close()
        await self._transport.close()

    async def __aenter__(self) -> GossipNode:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def address(self) -> Address:
        """The address at which others reach this node."""
        return self._running().me.address

    @property
    def start_id(self) -> str:
        """The id of this start of the node. No other start under this name has it."""
        return self._start_id

    @property
    def incarnation(self) -> int:
        """The number with which this node outbids older rumours about itself. It only grows."""
        return self._running().me.incarnation

    @property
    def members(self) -> list[PoolMember]:
        """All known members, this node and the recently dead included."""
        return self._running().members

    def member(self, name: str) -> PoolMember | None:
        """Returns the member of that name, if this node knows it."""
        return self._running().member(name)

    def health(self, name: str) -> HealthPiggyback | None:
        """Returns the newest health of a node, if any is known."""
        return self._running().health(name)

    @property
    def awareness(self) -> int:
        """This node's distrust in itself: 0 is well, 7 is worst."""
        return self._running().awareness

    @property
    def queued(self) -> int:
        """The number of rumours that wait to be passed on."""
        return self._running().queued

    def skew(self, name: str) -> Skew | None:
        """Returns that node's clock minus ours, as estimated from its acks; None before the first."""
        return self._running().skew.of(name)

    @property
    def own_skew(self) -> float | None:
        """Our clock minus the median of the pool's; None before any ack."""
        return self._running().skew.ours()

    def set_tags(self, tags: dict[str, str]) -> None:
        """Replaces this node's tags, and tells the pool."""
        self._perform(self._running().set_tags(tags))

    def set_health(self, health: HealthPiggyback) -> None:
        """Replaces this node's health. The pool hears of it."""
        self._perform(self._running().set_health(health))

    def on_event(self, listener: EventListener) -> Callable[[], None]:
        """Calls `listener` with every event. Returns a function that ends this."""
        return self._listeners.add(listener)

    def on_health(self, listener: HealthListener) -> Callable[[], None]:
        """Calls `listener` with `(node, health)` when a node's health has changed. Returns a function that ends this."""
        return self._listeners.add_health(listener)

    def _on_packet(self, source: Address, data: bytes) -> None:
        """Handles one datagram. The transport calls it."""
        if self._swim is None or self._closed:
            return
        now = self._tell_time(self._swim)
        try:
            messages = self._intake.messages(now, source, data)
        except WireError as error:
            self.counters.malformed += 1
            log.debug("a datagram from %s was dropped: %s", format_address(source), error)
            return
        for message in messages:
            self._perform(self._swim.receive(now, source, message))

    def _on_stream(self, source: Address, message: StreamMessage) -> bytes | None:
        """Handles the message of a stream that a peer opened. Returns the bytes of the answer, if there is one. The transport calls it."""
        self.counters.streams_accepted += 1
        swim = self._swim
        if swim is None or self._closed:
            return None
        now = self._tell_time(swim)
        match message:
            case PushPull():
                answer = self._answers.encode(swim.answer_state(message))
                self._merger.take(message)
            case Ping():
                ack = swim.answer_to(now, message)
                self._perform(swim.drain())
                if ack is None:
                    return None
                answer = encode(ack)
            case User():
                self._perform(swim.receive(now, source, message))
                return None
            case _:
                self.counters.malformed += 1
                return None
        sealed = seal_stream(self._codec, answer)
        self.counters.stream_bytes_sent += len(sealed)
        return sealed

    def _on_stream_failure(self) -> None:
        self.counters.streams_failed += 1

    def _new_inbox(self, opened_by_peer: bool) -> StreamInbox:
        def count(size: int) -> None:
            self.counters.stream_bytes_received += size

        most = self.settings.max_members
        return StreamInbox(self._codec, opened_by_peer=opened_by_peer, most_nodes=most, on_bytes=count)

    def _perform(self, effects: Effects) -> None:
        """Performs the effects of one call of the state machine, then sets the timer."""
        if not effects:
            self._arm()
            return
        for packet in effects.packets:
            self._send(packet.to, self._codec.seal(packet.parts, checksum=packet.checksum), packet.probe)
        for ping in effects.stream_pings:
            self._spawn(self._stream_ping(ping))
        for exchange in effects.exchanges:
            self._spawn(self._exchange(exchange))
        for event in effects.events:
            self._listeners.publish(event)
        self._arm()

    def _send(self, to: Address, data: bytes, probe: int) -> None:
        """Sends a datagram, and tells the state machine where our own machine refuses."""
        self.counters.packets_sent += 1
        self.counters.bytes_sent += len(data)
        try:
            self._transport.send(to, data)
        except OSError as error:
            swim = self._running()
            why = f"cannot send to {format_address(to)}: {error.strerror or error}"
            self._perform(swim.send_failed(self._clock.monotonic(), probe, why))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a stream as a task, unless too many are under way."""
        if self._closed or self._streams >= MAX_CONCURRENT_STREAMS:
            work.close()  # the next round asks for it again
            return
        self._streams += 1
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._stream_ended)

    def _stream_ended(self, task: asyncio.Task[None]) -> None:
        self._streams -= 1
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("gossip on a stream failed in an unexpected way", exc_info=error)

    async def _stream_ping(self, ask: StreamPing) -> None:
        """Pings a member on a stream, and tells the state machine of an answer in time."""
        swim = self._running()
        left = ask.until - self._clock.monotonic()
        if left <= 0:
            return
        try:
            answer = await self._talk(ask.to, encode(ask.ping), timeout_s=left)
        except (OSError, WireError, TimeoutError):
            return
        if isinstance(answer, Ack) and answer.seq == ask.ping.seq:
            self._perform(swim.stream_answered(self._clock.monotonic(), answer.seq))

    async def _exchange(self, exchange: PushPullExchange) -> None:
        try:
            await self._push_pull(exchange.to, exchange.state)
        except (OSError, WireError, TimeoutError) as error:
            log.info("push/pull with %s failed: %s", format_address(exchange.to), error or type(error).__name__)

    async def _push_pull(self, to: Address, state: PushPull) -> None:
        """Exchanges beliefs with one address and merges the answer. Raises `OSError`, `TimeoutError` or `WireError`."""
        answer = await self._talk(to, encode_push_pull(state), timeout_s=self.settings.stream_timeout_s)
        if isinstance(answer, StreamRefusal):
            raise WireError(f"the other side refused: {answer.error}")
        if not isinstance(answer, PushPull):
            raise WireError(f"the other side answered a push/pull with {type(answer).__name__}")
        await self._merger.merged(answer)

    def _merge(self, state: PushPull) -> None:
        swim = self._running()
        if not self._closed:
            self._perform(swim.merge(self._tell_time(swim), state))

    async def _talk(self, to: Address, body: bytes, *, timeout_s: float) -> StreamMessage:
        """Sends one message on a new stream and returns the answer. Counts streams, bytes and failures."""
        data = self._codec.stream_head + seal_stream(self._codec, body)
        self.counters.streams_opened += 1
        self.counters.stream_bytes_sent += len(data)
        try:
            return await self._transport.exchange(to, data, timeout_s=timeout_s)
        except (OSError, WireError, TimeoutError):
            self.counters.streams_failed += 1
            raise

    def _tell_time(self, swim: Swim) -> float:
        """Tells the state machine the wall clock, and returns the monotonic time."""
        now = self._clock.monotonic()
        swim.tell_wall(self._clock.wall() - now)
        return now

    def _arm(self) -> None:
        """Sets the timer for the next thing that is due."""
        swim = self._swim
        if swim is None or self._closed:
            return
        due = swim.next_due
        if self._timer is not None:
            if due >= self._timer_due:
                return  # it goes off before that, and is then set anew
            self._timer.cancel()
        now = self._clock.monotonic()
        self._timer_due = max(due, now)
        self._timer = asyncio.get_running_loop().call_later(self._timer_due - now, self._on_timer)

    def _on_timer(self) -> None:
        """Lets the state machine do what is due. The event loop calls it."""
        swim = self._running()
        self._timer = None
        now = self._tell_time(swim)
        late = now - self._timer_due
        if late > self.settings.lag_tolerance_s:
            self._perform(swim.lagged(now, late))
        self._perform(swim.tick(now))

    def _running(self) -> Swim:
        """Returns the state machine. Raises `ConfigurationError` before `start`."""
        if self._swim is None:
            raise ConfigurationError("this gossip node was not started", remedy="Await start(), or use async with")
        return self._swim
