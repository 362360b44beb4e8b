"""The supervisor's desk: it holds what was claimed, hands it to slots, and settles the outcomes, for all slots over one connection.

`ClaimQueue` decides what is claimed and who gets it. `EngineExchange` claims and settles, in a thread of its own; `DeliveryCalls` makes the calls
that concern one item. The supervisor's thread hears the slots. The desk puts these together, under one lock.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

import msgspec

from tenure.attempt_data import MAX_MESSAGE_RESULT_BYTES
from tenure.clock import Clock
from tenure.engines.contracts import Engine, Fence
from tenure.errors import EngineWentBackError, TenureError
from tenure.logs import NodeLog
from tenure.randomness import IdSource
from tenure.work.delivery import WorkHead, WorkResult
from tenure.work.isolated_errors import IsolatedErrors
from tenure.work.settler import ONCE
from tenure.work.slots.claim_page import ClaimPage, NamedClaim
from tenure.work.slots.claim_queue import ClaimedWork, ClaimQueue
from tenure.work.slots.claims import ClaimFilter, ServedMailboxes
from tenure.work.slots.delivery_calls import DeliveryCalls, HeldWork, RawMessage
from tenure.work.slots.engine_exchange import Demand, EngineExchange
from tenure.work.slots.frames import (
    UNREADABLE,
    FrameChannel,
    HandOver,
    SlotAnswer,
    SlotFrame,
    SlotRequest,
    WorkDeclined,
    WorkFinished,
)
from tenure.work.slots.settings import SlotSettings
from tenure.work.slots.slot_channel import OF_DELIVERY, STORED

_decode_head = msgspec.json.Decoder(WorkHead).decode
NOT_OURS = "ReceiptHandleExpiredError"


class DeliveryDesk:
    """Its methods may be called from any thread."""

    def __init__(
        self,
        settings: SlotSettings,
        engine: Engine,
        page: ClaimPage,
        worker: str,
        calls: DeliveryCalls,
        *,
        clock: Clock,
        random: Random,
        ids: IdSource,
        log: NodeLog,
        errors: IsolatedErrors,
        on_engine_lost: Callable[[EngineWentBackError], None],
        on_handed_over: Callable[[], None] = lambda: None,
    ) -> None:
        self._page, self._calls, self._clock, self._random, self._log = page, calls, clock, random, log
        self._errors, self.engine_lost, self._on_handed_over = errors, on_engine_lost, on_handed_over
        self._lock = threading.Condition()  # guards everything below
        self._mailboxes = ServedMailboxes(settings.lanes, managed=bool(settings.courier))
        self._filter = ClaimFilter(worker, knows=self._mailboxes.knows)
        self._peers: int | None = None
        """Other workers that could do the same work; None until a leader has said so."""
        self._queue, self._numbers = ClaimQueue(tick_s=settings.tick_s, renumber=self._renumber), 0
        self._channels: dict[int, FrameChannel] = {}
        self._by_receipt: dict[str, ClaimedWork] = {}
        self._aside: list[tuple[float, HeldWork]] = []  # work that this worker does not have, and when it goes back
        self._unanswered: dict[tuple[int, int], int] = {}
        """By seat and number, the entries of what was taken back from a slot that has not answered the hand-over."""
        self._exchange = EngineExchange(
            self,
            engine.consumer(msgspec.Raw, msgspec.Raw),
            self._mailboxes,
            settings,
            self._lock,
            clock=clock,
            random=random,
            ids=ids,
            log=log,
            errors=errors,
        )

    # Called by the supervisor.

    def serve(self, workflows: Sequence[tuple[str, str]]) -> None:
        """Begins to claim what the slots can do. A later call with other workflows changes what is claimed."""
        with self._lock:
            if self._mailboxes.serve(workflows):
                self._exchange.look_again(other_demand=True)
            self._exchange.start()

    def add_seat(self, seat: int, room: int, channel: FrameChannel, *, is_open: bool) -> None:
        with self._lock:
            self._channels[seat] = channel
            self._queue.add_seat(seat, room, is_open=is_open)
            self._go_on(other_demand=True)

    def remove_seat(self, seat: int, settled: set[str]) -> None:
        """Forgets a slot that is gone. `settled` are the receipts of what it ran; what it had not started goes to another slot."""
        with self._lock:
            self._channels.pop(seat, None)
            had = self._queue.remove_seat(seat)
            for place in [place for place in self._unanswered if place[0] == seat]:
                self._page.free(self._unanswered.pop(place))
            ran = [claim for claim in had if claim.held.message.receipt_handle in settled]
            for claim in ran:
                self.settled(claim)
            self._end_cancelled(self._queue.put_back(claim for claim in had if claim not in ran))
            self._go_on(other_demand=True)

    def admit(self, is_open: Callable[[int], bool], peers: int | None) -> None:
        """Sets which seats may get new work, and how many other workers could do it."""
        with self._lock:
            self._peers = peers
            self._queue.open_seats(is_open)
            self._go_on(other_demand=True)

    def hear(self, seat: int, frames: Sequence[SlotFrame], what: str) -> None:
        """Takes in what a slot sent together. Call `go_on` after it. An error of ours ends what concerns one frame: `what` names it in the log."""
        left = iter(frames)
        with self._lock:
            while next_one := next(left, None):
                with self._errors.isolate(
                    what
                ):  # one for all frames up to the first that fails: it costs as much as a frame
                    self._take_in_frame(seat, next_one)
                    for frame in left:
                        self._take_in_frame(seat, frame)

    def _take_in_frame(self, seat: int, frame: SlotFrame) -> None:
        if isinstance(frame, WorkFinished):
            self._finished(seat, frame)
        elif isinstance(frame, WorkDeclined):
            self._page.free(self._unanswered.pop((seat, frame.number), -1))
            claim = self._queue.declined(frame.number, seat)
            self._end_cancelled([claim] if claim is not None else [])
        elif isinstance(frame, SlotRequest):
            self._requested(seat, frame)

    def go_on(self) -> None:
        """Hands work over, and lets the exchange see what has changed."""
        with self._lock:
            self._go_on()

    def look(self) -> set[int]:
        """Takes back what waits too long. Returns the seats of slots that hold an item past its lease."""
        now, boottime = self._clock.monotonic(), self._clock.boottime()
        with self._lock:
            for claim in self._queue.handed:
                claim.lease_until = claim.held.message.lease_until  # it was extended, if the item runs
            marks, cancelled = self._queue.review(now, self._has_started)
            for claim in marks:
                self._page.withdraw(claim.held.entry, claim.number)
            self._end_cancelled(cancelled)
            self._go_on()
            self._release(self._queue.to_release(now))
            self._give_back_aside(now)
            return {claim.seat for claim in self._queue.overdue_leases(boottime) if claim.seat is not None}

    def cancel(self, job: str, workflow_id: str, attempt: int, fence: Fence | None, reason: str) -> bool:
        """Ends claims of one job that have not started. Returns True when there are any."""

        def concerns(claim: ClaimedWork) -> bool:
            head: WorkHead = claim.held.head
            named = head.job_id == job and workflow_id in ("", head.workflow_id) and attempt in (0, head.attempt)
            return named and fence in (None, claim.held.message.ticket.fence)

        with self._lock:
            found, handed = self._queue.cancel(concerns, reason)
            self._end_cancelled(found)
            return bool(found) or handed

    def message_of(self, receipt: str) -> RawMessage | None:
        """Returns the delivery with this receipt, while it is claimed here."""
        with self._lock:
            claim = self._by_receipt.get(receipt)
            return claim.held.message if claim is not None else None

    @property
    def nap_s(self) -> float:
        """Returns the seconds for which no slot waits for the supervisor."""
        with self._lock:
            return self._queue.nap_s

    @property
    def is_empty(self) -> bool:
        """Returns True while nothing here needs a look: nothing waits, and no slot has anything.

        Ended work that is being settled needs none. It is settled together with a claim that may wait for 20 s.
        """
        with self._lock:
            return self._queue.is_empty and not (self._aside or self._unanswered)

    @property
    def waiting(self) -> int:
        """Returns how many items were claimed and have not started."""
        with self._lock:
            return self._queue.waiting

    def drain(self) -> None:
        """Claims and hands over nothing more, and gives back what waits."""
        with self._lock:
            self._queue.closed = True
            self._release(self._queue.to_release(self._clock.monotonic()))
            self._give_back_aside(math.inf)
            self._exchange.look_again(other_demand=True)

    def drop(self) -> None:
        """Settles nothing any more: the engine does not know the deliveries, or gave them to others."""
        with self._lock:
            self._calls.dropping = self._queue.closed = True
            self._exchange.drop()

    def close(self, seconds: float) -> None:
        """Settles what has ended, for some seconds at most."""
        with self._lock:
            self._queue.closed = True
            if not self._calls.dropping:
                self._release(self._queue.to_release(self._clock.monotonic()))
                self._give_back_aside(math.inf)
            self._exchange.end()
        self._exchange.join(seconds)

    # Called by the exchange, with the lock held.

    def demand(self) -> Demand:
        return Demand(self._queue.idle_places, self._queue.wanted_ahead, self._queue.runs_low)

    def settled(self, claim: ClaimedWork) -> None:
        self._by_receipt.pop(claim.held.message.receipt_handle, None)
        self._page.free(claim.held.entry)

    def refused(self, claim: ClaimedWork, reply: bytes, error: TenureError) -> None:
        self._settle_apart(claim, partial(self._calls.settle_refused, claim.held, reply, error))

    def take_in(self, messages: Sequence[RawMessage]) -> None:
        """Takes in what was claimed together."""
        now = self._clock.monotonic()
        claims = [claim for message in messages if (claim := self._claim_of(message, now)) is not None]
        self._release(self._queue.add(claims))
        self._hand_over()

    # Everything below is called with the lock held.

    def _claim_of(self, message: RawMessage, now: float) -> ClaimedWork | None:
        """Returns the claim of a message; None when it is no work, or another worker should have it."""
        try:
            head = _decode_head(message.body)
        except UNREADABLE as error:
            self._calls.submit("giving up what is no work", partial(self._calls.reject, message, error))
            return None
        lane = self._mailboxes.lane_of(message.mailbox)
        if self._filter.declines(head, self._peers, now, message.id):
            pause_s = self._filter.next_pause_s(self._random.random())
            held = HeldWork(message, head, lane, -1)
            if head.managed or self._queue.closed:
                self._mailboxes.pause(message.mailbox, now + pause_s)
                self._calls.give_back(held)
            else:  # no leader takes it away, and given back at once it would be the next claim
                lease_s = message.lease_until - self._clock.boottime()
                self._aside.append((now + min(pause_s, lease_s / 2), held))
            return None
        claim = ClaimedWork(
            0,
            (head.workflow, head.version or ""),
            now,
            message.lease_until,
            HeldWork(message, head, lane, -1),
        )
        self._name(claim)
        self._by_receipt[message.receipt_handle] = claim
        return claim

    def _name(self, claim: ClaimedWork) -> None:
        """Gives a claim a number, and names it in a free entry of the page."""
        message, head = claim.held.message, claim.held.head
        self._numbers += 1
        claim.number = self._numbers
        named = NamedClaim(message.mailbox, head.workflow[:200], message.ticket)
        claim.held.entry = self._page.name(claim.number, named)
        claim.withdrawable = claim.held.entry >= 0

    def _renumber(self, claim: ClaimedWork, answered: bool) -> None:
        """Under its old number a slot would decline it again and again: the mark stays for the slot that may still read the hand-over."""
        number, entry = claim.number, claim.held.entry
        self._name(claim)
        if answered or claim.seat is None or entry < 0:
            self._page.free(entry)
        else:
            self._page.clear(entry)
            self._unanswered[claim.seat, number] = entry

    def _go_on(self, *, other_demand: bool = False) -> None:
        self._hand_over()
        self._exchange.look_again(other_demand=other_demand)

    def _hand_over(self) -> None:
        handed, lost = self._queue.hand_over(self._clock.monotonic(), self._clock.boottime())
        for claim in lost:
            self.settled(claim)  # it is back in its mailbox, or another worker has it
        frames: dict[int, list[SlotFrame]] = {}
        for claim in handed:
            assert claim.seat is not None, "the queue gave it one"
            frames.setdefault(claim.seat, []).append(_hand_over_of(claim))
        for seat, works in frames.items():
            self._channels[seat].send(*works)
        if frames:
            self._on_handed_over()

    def _has_started(self, claim: ClaimedWork) -> bool:
        return self._page.has_started(claim.held.entry, claim.number)

    def _finished(self, seat: int, frame: WorkFinished) -> None:
        claim = self._queue.finished(frame.number, seat, frame.seconds, self._clock.monotonic())
        if claim is None:  # it was taken back, and is in other hands
            self._page.free(self._unanswered.pop((seat, frame.number), -1))
            return
        if frame.ok and not frame.log and claim.held.calls is None and len(frame.result) <= MAX_MESSAGE_RESULT_BYTES:
            self._exchange.settle(claim, self._calls.signed(claim.held, frame.result))
        else:
            call = partial(self._settle_in_order, claim, frame)
            self._calls.in_order(claim.held, f"settling {claim.held.head.workflow}", call)

    def _settle_in_order(self, claim: ClaimedWork, frame: WorkFinished) -> None:
        """Keeps the log and settles the outcome, after all that the attempt asked for. Runs in another thread, without the lock."""
        if frame.log:
            self._calls.keep_log(claim.held, frame.log)
        if frame.ok and len(frame.result) <= MAX_MESSAGE_RESULT_BYTES:
            with self._lock:
                self._exchange.settle(claim, self._calls.signed(claim.held, frame.result))
                self._exchange.look_again()
            return
        result = msgspec.json.decode(frame.result, type=WorkResult)
        try:
            self._calls.settle_alone(claim.held, result, frame.retry or ONCE)
        finally:
            with self._lock:
                self.settled(claim)

    def _requested(self, seat: int, request: SlotRequest) -> None:
        channel, claim = self._channels[seat], self._queue.find(request.number, seat)
        if request.kind not in OF_DELIVERY:
            self._calls.ask_managers(channel, request)
        elif claim is None:
            channel.send(SlotAnswer(request.ref, b"", NOT_OURS, f"claim {request.number} is not this slot's any more"))
        elif request.kind == STORED:
            self._calls.fetch_result(channel, claim.held, request)
        else:
            self._calls.keep(channel, claim.held, request)

    def _release(self, claims: Sequence[ClaimedWork]) -> None:
        for claim in claims:
            self.settled(claim)
            self._calls.give_back(claim.held)

    def _give_back_aside(self, now: float) -> None:
        due = [held for at, held in self._aside if at <= now]
        self._aside = [one for one in self._aside if one[0] > now]
        for held in due:
            self._calls.give_back(held)

    def _end_cancelled(self, claims: Sequence[ClaimedWork]) -> None:
        for claim in claims:
            self._settle_apart(claim, partial(self._calls.settle_cancelled, claim.held, claim.verdict))

    def _settle_apart(self, claim: ClaimedWork, call: Callable[[], None]) -> None:
        self.settled(claim)
        self._calls.in_order(claim.held, f"settling {claim.held.head.workflow}", call)


def _hand_over_of(claim: ClaimedWork) -> HandOver:
    held: HeldWork = claim.held
    message = held.message
    return HandOver(
        claim.number, held.entry, message.mailbox, held.lane, message.ticket, bytes(message.body), message.checkpoint
    )
