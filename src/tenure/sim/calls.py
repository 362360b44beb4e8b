"""The engine of a simulated world, and how the calls of a simulated process travel to it: they take time, and may fail at each point of the way.

The engine is a real `MemoryEngine` on a clock of its own. Scenarios and invariants may look at `Backend.engine` itself; one that writes to it calls
`touch` afterwards, because nothing else tells the long polls of nodes. Nodes reach it through a `Connection`, whose `do` the simulated handles
call. Called straight from a node it happens at once. Called through `EngineCalls.run`, the request and the answer travel as on a wire, and a long
poll waits without holding anybody up. A call can fail before its effect, after it, or before an effect that still comes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tenure.engines.memory import MemoryEngine
from tenure.errors import EngineClosedError, EngineUnavailableError, SimulationForbiddenError, TenureError
from tenure.randomness import seeded_ids
from tenure.sim.clock import SimClock
from tenure.sim.kernel import SimTimer, to_ticks

if TYPE_CHECKING:
    from tenure.sim.engine import SimEngine
    from tenure.sim.world import Host, World


T = TypeVar("T")


CALL_TIMEOUT_S = 2.0
"""After this long a client gives up on an engine that does not answer."""


class PollTopic(NamedTuple):
    """The name of the state that a long poll waits on and that a call changes."""

    part: str
    name: str


Topics = tuple[PollTopic, ...]


class WouldBlock(Exception):
    """The engine would wait here; in a simulation the call is tried again when something changed or the time is up."""

    def __init__(self, timeout: float | None) -> None:
        self.timeout = timeout


class EngineClock(SimClock):
    """The engine's own time. It never drifts: it is what all the others drift from."""

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        if timeout is not None and timeout <= 0:
            return False
        raise WouldBlock(timeout)


class Backend:
    """The one engine that all nodes of a datacenter share."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.clock = EngineClock(world.kernel, monotonic=50_000.0)
        self.engine = MemoryEngine(self.clock, ids=seeded_ids(world.random(f"ids/{name}")), url="memory://")
        self.outages = 0
        """While above 0, nothing reaches the engine."""
        self.late: list[float] = []
        """Chances that a call fails first and takes effect afterwards, one for each fault that is on."""
        self.written = 0
        """How often a journal was written to: whoever watches journals need not ask each of them."""
        self._parked: dict[PollTopic, dict[Call, None]] = {}

    def connect(self, host: Host) -> SimEngine:
        """Returns the engine as this life of a process sees it."""
        from tenure.sim.engine import SimEngine

        return SimEngine(self, host)

    def end_outage(self) -> None:
        self.outages -= 1

    def park(self, call: Call, topics: Topics) -> None:
        """Keep a long poll until something changes in one of them."""
        for topic in topics:
            self._parked.setdefault(topic, {})[call] = None

    def leave(self, call: Call, topics: Topics) -> None:
        for topic in topics:
            self._parked.get(topic, {}).pop(call, None)

    def end_polls(self, connection: Connection) -> None:
        """Ends the polls of a client that closes: its long polls look again, and find that."""
        mine = [call for waiting in self._parked.values() for call in waiting if call.connection is connection]
        for call in dict.fromkeys(mine):
            call.look_again()

    def touch_first(self, topic: PollTopic) -> None:
        """Tells that the next thing to happen there may happen earlier than before: the first in line looks, and waits anew."""
        for call in self._parked.get(topic, ()):
            call.look_again()
            return

    def touch(self, topic: PollTopic) -> None:
        """Something changed: whoever waits for it looks again, in the order in which they came."""
        if topic.part == "journal":
            self.written += 1
        waiting = self._parked.pop(topic, None)
        for call in waiting or ():
            call.look_again()


class Fate(StrEnum):
    """The fate of one call."""

    ANSWERED = "answered"
    REFUSED = "refused"  # the engine said no at once, and nothing happened
    LOST = "lost"  # it never arrived; the caller waits until it gives up
    FORGOTTEN = "forgotten"  # it was committed, and the answer was lost
    LATE = "late"  # the caller was told that it failed, and then it was committed


class Connection:
    """One process's way to the engine."""

    def __init__(self, backend: Backend, host: Host) -> None:
        self.backend, self.host = backend, host
        self.closed = False
        self.call: Call | None = None
        """The travelling call that is at the engine right now."""
        self._network = backend.world.network
        self._random = backend.world.random(f"engine/{host.id}")

    @property
    def asked_at(self) -> float:
        """The caller's boot time before it asked: what it may rely on counts from here."""
        return self.call.asked_at if self.call is not None else self.host.clock.boottime()

    def fate(self) -> Fate:
        """Draw what becomes of the next call."""
        here, engine = self.host.name, self.backend.name
        link = self._network.link(here, engine)
        chance = self._random.random
        if self.backend.outages or (link.break_before and chance() < link.break_before):
            return Fate.REFUSED
        if not self._network.reachable(here, engine):
            return Fate.LOST
        if (link.break_after and chance() < link.break_after) or not self._network.reachable(engine, here):
            return Fate.FORGOTTEN
        if self.backend.late and chance() < max(self.backend.late):
            return Fate.LATE
        return Fate.ANSWERED

    def reaches(self) -> bool:
        """Returns True when the engine runs and requests of this process reach it."""
        return not self.backend.outages and self._network.reachable(self.host.name, self.backend.name)

    def hears(self) -> bool:
        """Returns True when the engine's answers reach this process."""
        return self._network.reachable(self.backend.name, self.host.name)

    def delay(self) -> int:
        """Returns the delay of one direction, in ticks."""
        low, high = self._network.link(self.host.name, self.backend.name).delay_s
        return to_ticks(low + (high - low) * self._random.random())

    def unavailable(self, fate: Fate) -> EngineUnavailableError:
        return EngineUnavailableError(f"simulated: a call of {self.host.id} was {fate}")

    def do(
        self,
        act: Callable[[], T],
        says: str | None = None,
        *,
        touches: PollTopic | None = None,
        waits: Topics = (),
    ) -> T:
        """Do one thing at the engine. `says` puts it into the trace; it is None for what changes nothing."""
        if self.call is not None:
            self.call.waits = waits
            return self.commit(act, says, touches)
        if self.host.loop.dead:
            raise EngineUnavailableError(f"{self.host.id} is dead, and what it still tries has no effect")
        if self.closed:
            raise EngineClosedError(f"{self.host.id} closed its engine", remedy="Open it again")
        fate = self.fate()
        if fate is Fate.LATE:
            self._network.after(self.lateness(), self._commit_late, act, says, touches)
        if fate in (Fate.REFUSED, Fate.LOST, Fate.LATE):
            raise self.unavailable(fate)
        result = self.commit(act, says, touches)
        if fate is Fate.FORGOTTEN:
            raise self.unavailable(fate)
        return result

    def commit(self, act: Callable[[], T], says: str | None, touches: PollTopic | None) -> T:
        world = self.backend.world
        try:
            result = act()
        except WouldBlock:
            if self.call is not None:
                raise
            raise SimulationForbiddenError(
                f"{self.host.id} waits for the engine, and would stop the thread that simulates everybody",
                remedy="Use `await host.calls.run(mailbox.receive, ...)`, or a wait of 0",
            ) from None
        except TenureError as error:
            if says is not None:
                world.record(self.host.id, f"{says}: {type(error).__name__}")
            raise
        if says is not None:
            world.record(self.host.id, f"{says} = {result}" if isinstance(result, int) else says)
        if touches is not None:
            self.backend.touch(touches)
        return result

    def _commit_late(self, act: Callable[[], object], says: str | None, touches: PollTopic | None) -> None:
        with suppress(TenureError, WouldBlock):  # nobody is there to be told
            self.commit(act, says and f"late {says}", touches)

    def when_answered(self, act: Callable[[], None]) -> None:
        """Do this once the caller knows that its call succeeded: at once, or when the answer has travelled back."""
        if self.call is None:
            act()
        else:
            self.call.when_answered = act

    def lateness(self) -> int:
        return to_ticks(self._random.random() * 2 * CALL_TIMEOUT_S)


class Call:
    """One call on its way to the engine and back."""

    def __init__(self, connection: Connection, act: Callable[[], Any]) -> None:
        self.asked_at = connection.host.clock.boottime()
        self.waits: Topics = ()
        self.poll_until: float | None = None
        """For a long poll: when it ends, in the engine's boot time."""
        self.when_answered: Callable[[], None] | None = None
        self.connection, self._act = connection, act
        self._world = connection.backend.world
        self._timer: SimTimer | None = None
        self._parked_at: Topics = ()
        self.kept: Any = None
        """For a long poll: what its first try got, beside messages."""
        self._fate = connection.fate()
        self.future: asyncio.Future[Any] = connection.host.loop.create_future()

    def send(self) -> None:
        connection, network = self.connection, self._world.network
        there, give_up = connection.delay(), to_ticks(CALL_TIMEOUT_S)
        if self._fate is Fate.REFUSED:
            self._fail(there)
        elif self._fate is Fate.LOST:
            self._fail(give_up)
        elif self._fate is Fate.LATE:
            self._fail(give_up)
            network.after(give_up + connection.lateness(), self._arrive)
        else:
            network.after(there, self._arrive)

    def _fail(self, ticks: int) -> None:
        self._world.network.after(ticks, self._tell, None, self.connection.unavailable(self._fate))

    def _arrive(self) -> None:
        connection = self.connection
        connection.call = self
        try:
            result, error = self._act(), None
        except WouldBlock as blocked:
            self._park(blocked)
            return
        except Exception as raised:
            result, error = None, raised
        finally:
            connection.call = None
        if self._fate is Fate.ANSWERED and connection.hears():
            self._world.network.after(connection.delay(), self._tell, result, error)
        elif self._fate is not Fate.LATE:
            self._fate = Fate.FORGOTTEN
            self._fail(to_ticks(CALL_TIMEOUT_S))

    def _park(self, blocked: WouldBlock) -> None:
        if self._fate is Fate.LATE:
            return  # a poll that nobody waits for any more
        if not self.waits:
            self._tell(None, SimulationForbiddenError(f"{self._act!r} waits inside the engine, and is no long poll"))
            return
        self._parked_at = self.waits
        self.connection.backend.park(self, self._parked_at)
        if blocked.timeout is not None:
            self._timer = self._world.network.after(to_ticks(blocked.timeout), self.look_again)

    def look_again(self) -> None:
        """Something changed, or the time is up: try once more, unless the process is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        left, self._parked_at = self._parked_at, ()
        self.connection.backend.leave(self, left)
        gone = self.connection.host.loop.dead or self.future.done()  # and claims nothing any more
        if gone or not self.connection.reaches():
            if not gone:
                self._fate = Fate.LOST
                self._fail(to_ticks(CALL_TIMEOUT_S))
            for topic in left:
                self.connection.backend.touch_first(topic)
            return
        self.asked_at = self.connection.host.clock.boottime()  # a lease counts from this try, not from the first
        self._world.network.after(0, self._arrive)

    @property
    def polled_before(self) -> bool:
        return self.poll_until is not None

    def remaining(self, wait_s: float) -> float:
        """Returns how much of a long poll's time is left, now that it is tried again."""
        now = self.connection.backend.clock.boottime()
        if self.poll_until is None:
            self.poll_until = now + wait_s
        return max(0.0, self.poll_until - now)

    def _tell(self, result: Any, error: Exception | None) -> None:
        if self.future.done() or self.connection.host.loop.dead:
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            if self.when_answered is not None:
                self.when_answered()
            self.future.set_result(result)


class EngineCalls:
    """Makes the engine calls of an asyncio node."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def run(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """Call the engine and wait for its answer, as a thread would.

        One engine call for each `run`: it is one request. Cancelling does not take back what was sent.
        """
        connection = self._connection
        if connection.closed:
            raise EngineClosedError(f"{connection.host.id} closed its engine", remedy="Open it again")
        call = Call(connection, partial(function, *args, **options))
        if not connection.host.loop.dead:
            call.send()
        result: T = await call.future
        return result
