"""The commands of this process that have not come back through the stream yet, and its long polls with the claims that they left in the log.

All of it runs on the background loop.

Each has its deadline, and whoever asked is told at the deadline whatever the connection does: deadlines are looked at before anything
is sent. A command that does not come back is sent again, which is harmless: the fold drops the second by its id. Nothing is sent
into a connection that takes nothing, so a silent server costs no memory.

A delivery that the fold hands to a standing claim begins with a short hold (`ledger_records.HAND_OVER_S`) and is confirmed within milliseconds, which the work
does not wait for. Until the confirmation is back, `lease_until` says no more than the short hold, counted from a moment that cannot be too late.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from tenure.backoff import Backoff
from tenure.engines.long_poll import Poll
from tenure.engines.nats import address as faults
from tenure.engines.nats import commands as c
from tenure.engines.nats.address import ApiError
from tenure.engines.nats.connection import NatsConnection
from tenure.engines.nats.ledger_records import HAND_OVER_S, Delivery, Handed, held_by_mailbox
from tenure.errors import TenureError

if TYPE_CHECKING:
    from tenure.engines.nats.command_log import CommandLog


log = logging.getLogger("tenure.engines.nats")

_RIDE_S = 0.01
"""A command that may ride waits this long for another one of its process. What it says (a claim is confirmed or withdrawn) is needed only by those who
meet a process that is gone, or late, and they wait for `HAND_OVER_S`."""
_LONG_RIDE_S = 0.1
"""A command that nobody else needs waits this long: the acknowledgement of a result that an entry records, because the entry says the same, and a next claim, which
leaves as soon as there is something for it (decision 0940)."""
_LOOK_EVERY_S = 0.05
_AGAIN_S = 0.25
_AND_AGAIN_S = 1.0


class PendingCommand:
    """A command under way."""

    __slots__ = ("again_at", "end", "future", "name", "pause", "payload", "unanswered_since")

    def __init__(self, name: str, payload: bytes, future: asyncio.Future[Any], again_at: float, end: float) -> None:
        self.name, self.payload, self.future, self.again_at, self.end = name, payload, future, again_at, end
        self.pause: Backoff | None = None
        self.unanswered_since = inf
        """Our clock when the server was first asked for an answer to it that did not come."""


class PendingCommands:
    """The commands of one engine that are under way, by id. `subject` is where commands are appended; `why` asks the server what keeps it from that."""

    def __init__(
        self, link: NatsConnection, subject: str, prefix: str, why: Callable[[], Awaitable[TenureError | None]]
    ) -> None:
        self._link, self._subject, self._prefix, self._why = link, subject, prefix, why
        self._asking_why: asyncio.Task[None] | None = None
        self._asked: dict[str, PendingCommand] = {}
        self._under_way = asyncio.Event()
        """Set while there is something to look after: an idle engine runs nothing."""
        self._inbox = ""
        self._riders: dict[str, c.AnyCommand] = {}
        """Commands that wait for another one to leave with, by id."""
        self._flushing: asyncio.Task[None] | None = None
        self._ridden: set[asyncio.Future[Any]] = set()
        """The answers that riding commands wait for, sent or not yet."""

    async def open(self) -> None:
        self._inbox = self._link.client.new_inbox()
        await self._link.client.subscribe(f"{self._inbox}.*", cb=self._on_answer, pending_msgs_limit=0)

    async def ask(self, command: c.AnyCommand, *, rides: bool = False) -> Any:
        """Append it; what `answer` or `fail` is told of it. After `EngineUnavailableError` the outcome is unknown."""
        now = self._link.clock.monotonic()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        name, end = str(command.__struct_config__.tag), now + self._link.settings.timeout_s
        asked = PendingCommand(name, c.encode(command), future, now + _AGAIN_S, end)
        self._asked[command.id] = asked
        self._under_way.set()
        try:
            if rides:
                self._ridden.add(future)
                self._board(command)
            else:
                await self._leave(asked, command)
            return await future
        finally:
            self._ridden.discard(future)
            del self._asked[command.id]

    async def _leave(self, asked: PendingCommand, command: c.AnyCommand) -> None:
        """Sends it with those that waited for it, which come first: one message, that each process reads and folds once.

        Each is sent again by itself where it does not come back. The server is not asked for an answer of its own: the command comes back, or is
        sent again with that question.
        """
        riders = self._leaving()
        if riders:
            together = c.encode(c.Several([*riders, command]))
            if len(together) <= self._link.max_payload:
                await self._publish(asked.name, together, "")
                return
            await self._publish(asked.name, c.encode(c.Several(riders)), "")
        await self._publish(asked.name, asked.payload, "")

    def _board(self, command: c.AnyCommand) -> None:
        """Has it wait for another command. Where the acknowledgement of what a claim gave waits, the confirmation of that claim is not needed any more."""
        if isinstance(command, c.Deliver):
            ended = set(command.ended)
            for rider in [each for each in self._riders.values() if isinstance(each, c.Confirm)]:
                if ended.issuperset((rider.box, *held) for held in rider.held):
                    del self._riders[rider.id]
                    self.answer(rider.id, [])
        self._riders[command.id] = command
        ride_s = _LONG_RIDE_S if isinstance(command, c.Deliver | c.AwaitApart) else _RIDE_S
        asyncio.get_running_loop().call_later(ride_s, self._leave_late, command.id)

    def _leave_late(self, name: str) -> None:
        if name in self._riders:  # nothing came that it could leave with
            self._flushing = asyncio.get_running_loop().create_task(self._flush_quietly())

    def _leaving(self) -> list[c.AnyCommand]:
        riders, self._riders = self._riders, {}
        return list(riders.values())

    async def _flush_quietly(self) -> None:
        with contextlib.suppress(TenureError):  # each is sent again by itself, and told then
            await self.flush()

    async def flush(self) -> None:
        """Sends what still waits for another command."""
        if riders := self._leaving():
            await self._publish("commands", c.encode(c.Several(riders) if riders[1:] else riders[0]), "")

    async def settle_riders(self) -> None:
        """Returns when the log holds what this process said without waiting for it."""
        if self._ridden:
            await self.flush()
            await asyncio.wait(set(self._ridden), timeout=self._link.settings.timeout_s)

    def answer(self, name: str, result: Any) -> bool:
        """The fold's answer to a command of this id. False when nobody waits for it."""
        asked = self._asked.get(name)
        if asked is None or asked.future.done():
            return False
        asked.future.set_result(result)
        return True

    def fail(self, name: str, error: Exception) -> None:
        asked = self._asked.get(name)
        if asked is not None and not asked.future.done():
            asked.future.set_exception(error)

    def fail_all(self, error: Exception) -> None:
        for name in list(self._asked):
            self.fail(name, error)

    def send_again(self) -> None:
        """The connection is new: what was sent over the old one may be lost."""
        for asked in self._asked.values():
            asked.again_at = 0.0

    async def _publish(self, name: str, payload: bytes, reply: str) -> None:
        """Send it, unless the connection takes nothing: then it is sent again later."""
        if self._link.clogged:
            return
        # Without headers: every process would have to parse those of every command.
        try:
            await self._link.client.publish(self._subject, payload, reply=reply)
        except Exception as error:
            if not faults.is_lost(error):
                raise self._link.told(error, f"{name} on {self._link.settings.shown}") from error

    async def _on_answer(self, message: Any) -> None:
        """The server's answer to an append. Only refusals matter: what was appended comes back by itself."""
        data = message.data
        if data and b'"error"' not in data:
            return
        name = f"{self._prefix}{message.subject.rpartition('.')[2]}"
        asked = self._asked.get(name)
        if asked is None:
            return
        if not data:  # no responders: the stream has no leader at the moment
            self._soon_again(asked)
            return
        refused = ApiError(json.loads(data)["error"])
        if refused.number in faults.PASSING:
            self._soon_again(asked)
        else:
            where = f"{asked.name} on {self._link.settings.shown}"
            self.fail(name, faults.translate(refused, where, self._link.settings.secrets))

    def _soon_again(self, asked: PendingCommand) -> None:
        asked.unanswered_since = inf
        asked.pause = asked.pause or Backoff(self._link.random, first_s=0.05, most_s=0.5)
        asked.again_at = self._link.clock.monotonic() + asked.pause.next()

    async def look_after(self) -> None:
        """For ever: end what is past its deadline, then send again what did not come back."""
        while True:
            if not self._asked:
                self._under_way.clear()
                await self._under_way.wait()
            await asyncio.sleep(_LOOK_EVERY_S)
            now = self._link.clock.monotonic()
            for name, asked in list(self._asked.items()):
                if now >= asked.end:
                    self.fail(name, self._link.no_answer(f"{asked.name} on {self._link.settings.shown}"))
            for name, asked in list(self._asked.items()):
                if self._link.client.is_connected and now >= asked.again_at and not asked.future.done():
                    asked.again_at = now + _AND_AGAIN_S
                    asked.unanswered_since = min(asked.unanswered_since, now)
                    await self._send_again(name, asked)
            unanswered = [name for name, asked in self._asked.items() if now - asked.unanswered_since >= _AGAIN_S]
            if unanswered and self._link.client.is_connected and (self._asking_why is None or self._asking_why.done()):
                self._asking_why = asyncio.get_running_loop().create_task(self._ask_why(unanswered))

    async def _ask_why(self, names: list[str]) -> None:
        """The server takes requests and answers none of these commands: perhaps it says why. Each is refused, and was not done, when it does."""
        if (error := await self._why()) is not None:
            for name in names:
                self.fail(name, error)
        await asyncio.sleep(_AGAIN_S)  # a server that is only slow is not asked in every turn

    async def _send_again(self, name: str, asked: PendingCommand) -> None:
        try:
            await self._publish(asked.name, asked.payload, f"{self._inbox}.{name.rpartition('.')[2]}")
        except TenureError as error:
            self.fail(name, error)


class LogPoll(Poll):
    """One long poll on a mailbox, whose claim stands in the log, or one follow of a journal."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        super().__init__(self._event.set)
        self.handed: Handed | None = None
        """The deliveries of its standing claim that the poll has not taken yet."""
        self.take: Callable[[Handed], None] | None = None
        """Takes it at once, where there is something to take it."""
        self.taken = False
        self.doubtful = False
        """True when its claim may stand no longer."""
        self.until = inf  # engine time at which it looks by itself
        self.watched: Sequence[str] = ()
        """The mailboxes in whose lines it stands, of those who watch timers."""

    def hand(self, handed: Handed) -> None:
        if self.take is not None:
            self.taken = True
            self.take(handed)
        else:
            self.handed = handed
        self.ring()

    def accept(self) -> Handed | None:
        """Returns what was handed over and is not taken yet: it is the caller's from now on."""
        handed, self.handed = self.handed, None
        return handed

    def doubt(self) -> None:
        self.doubtful = True
        self.ring()

    async def wait(self, seconds: float) -> None:
        """Until it is rung, at most this long."""
        timer = asyncio.get_running_loop().call_later(seconds, self._event.set)
        try:
            await self._event.wait()
        finally:
            timer.cancel()
            self._event.clear()


class TimerWatch:
    """The oldest long poll on a mailbox keeps watch over its timers for all: the log does nothing by itself when a lease or a delay ends."""

    def __init__(self, next_due: Callable[[str], float]) -> None:
        self._next_due = next_due
        self._line: dict[str, dict[LogPoll, None]] = {}

    async def wait(self, names: Sequence[str], poll: LogPoll, seconds: float, about_now: float) -> None:
        """Until it is rung, or has to look at a timer of these mailboxes, at most this long."""
        if poll.watched != names:
            self.leave(poll)
            poll.watched = names
        poll.until = inf
        for name in names:
            line = self._line.setdefault(name, {})
            line.setdefault(poll)
            if next(iter(line)) is poll:
                poll.until = min(poll.until, self._next_due(name))
        await poll.wait(max(0.001, min(seconds, poll.until - about_now)))

    def leave(self, poll: LogPoll) -> None:
        names, poll.watched = poll.watched, ()
        for name in names:
            line = self._line[name]
            del line[poll]
            if line:
                self.stir(name)
            else:
                del self._line[name]

    def stir(self, name: str) -> None:
        line = self._line.get(name)
        if not line:
            return
        watch = next(iter(line))
        if self._next_due(name) < watch.until:
            watch.ring()


class Claimed(NamedTuple):
    receipt: str
    lease_until: float
    deliveries: list[Delivery]
    confirmed: dict[str, float]
    """By message, how far its lease goes since what was handed over is confirmed."""


class StandingClaims:
    def __init__(self, log: CommandLog) -> None:
        self._log = log
        self._polls: dict[str, LogPoll] = {}
        self._boxes: dict[str, str] = {}

    def begin(self, receipt: str, box: str, poll: LogPoll) -> None:
        """Before the claim is left in the log: it may be served the moment it is there."""
        self._polls[receipt], self._boxes[receipt] = poll, box

    def end(self, receipt: str) -> None:
        """Nobody waits for it any more. What is still handed to it is given back."""
        self._polls.pop(receipt, None)
        self._boxes.pop(receipt, None)

    def told(self, handed: list[Handed], dropped: list[str]) -> None:
        """By the fold: what was given to whom, and whose claims were ended. Most of both are others' affairs."""
        for one in handed:
            poll = self._polls.get(one.receipt)
            if poll is not None:
                poll.hand(one)
            elif self._log.is_ours(one.receipt):
                self._log.give_back(one.receipt, one.deliveries)
        for receipt in dropped:
            if (poll := self._polls.get(receipt)) is not None:
                poll.doubt()

    def doubt(self) -> None:
        """The connection was lost, or we fell behind: nobody knows whether they still stand."""
        for poll in self._polls.values():
            poll.doubt()

    async def withdraw_all(self) -> None:
        """Before this process leaves: they are sent, and not waited for."""
        for receipt, box in list(self._boxes.items()):
            self._log.withdraw(box, receipt)
        await asyncio.sleep(0)
        await self._log.flush()  # they are written before the connection is closed

    def accept(self, handed: Handed, asked: float, stood_at: float) -> Claimed:
        """`asked` is our boot time before the claim was left, `stood_at` the log's time when it came there."""
        now, confirmed = self._log.clock.boottime(), dict[str, float]()
        self._log.spawn(self._confirm(handed, now + handed.lease, confirmed))
        # By the log's clock it was handed over so long after that; and not later than now, whatever the log's clock did meanwhile.
        begun = min(asked + (handed.at - stood_at), now)
        return Claimed(handed.receipt, begun + min(handed.lease, HAND_OVER_S), handed.deliveries, confirmed)

    async def _confirm(self, handed: Handed, until: float, confirmed: dict[str, float]) -> None:
        log = self._log
        by_mailbox = held_by_mailbox(handed.receipt, handed.deliveries)
        confirms = [c.Confirm(log.new_id(), box, held, handed.lease) for box, held in by_mailbox.items()]
        asks = [log.ask(confirm, rides=True) for confirm in confirms]
        for kept in await asyncio.gather(*asks):
            confirmed.update(dict.fromkeys(kept, until))
