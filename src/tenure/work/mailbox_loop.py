"""The one base of every loop: take a message, do the work while its beats keep the lease, settle it, take the next.

This file decides what becomes of a message in every case: done, failed, poisonous, lost, or not started. It knows nothing about what the
work is (`handle` does), and nothing about the other loops of a process (`LoopGroup` does).
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Generic

from tenure.backoff import Retry
from tenure.beat.heartbeat import Heartbeat
from tenure.beat.ladder import Ladder
from tenure.beat.lease import LeaseExtender, LeaseExtenderConfig, LeaseHold
from tenure.beat.metrics import count_message, prepare_messages
from tenure.beat.watchdog import LoopState, LoopVitals
from tenure.clock import Clock, SystemClock
from tenure.engines.contracts import BodyT, Mailbox, Message, ReplyT
from tenure.errors import (
    EngineClosedError,
    LeaseLostError,
    LimitError,
    MailboxClosedError,
    ReceiptHandleExpiredError,
    SerializationError,
    TenureError,
)
from tenure.randomness import Random, fresh_random
from tenure.work.loop_messages import CLAIM_S, KEEP_TRYING, Batch, DeadLetterPolicy, Ending, HandOver, OnLeaseLost
from tenure.work.retry_verdict import rest_after

_logger = logging.getLogger(__name__)

_RECONNECT = Retry(delay=0.1, factor=2.0, max_delay=10.0)


class MailboxLoop(ABC, Generic[BodyT, ReplyT]):
    """Takes messages from a mailbox, one at a time, and settles each by what `handle` did.

    Subclasses write `handle`. They may also override `handle_failure`, `handle_error` and `lease_lost`. `run` blocks; `stop` asks it
    to end after the message in hand, and wakes its long poll.
    """

    # A loop that has not run yet.
    _hand_over: HandOver | None = None  # set where beats must not wait for the engine
    _runner: threading.Thread | None = None
    _stop_asked, _state = False, LoopState.STARTING
    _error: str | None = None
    _in_hand: Message[BodyT, ReplyT] | None = None
    _lease: LeaseHold | None = None
    _receive_failures, _visibility_timeout = 0, 0.0

    def __init__(
        self,
        requests: Mailbox[BodyT, ReplyT],
        *,
        name: str | None = None,
        lease_extender: LeaseExtenderConfig | None = None,
        on_lease_lost: OnLeaseLost | str = OnLeaseLost.CONTINUE,
        retry: Retry | None = None,
        dead_letters: DeadLetterPolicy | None = None,
        max_messages: int = 1,
        max_silence_s: float | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        """`max_silence_s` is the longest the work goes without a beat, where known: the timeouts are checked against it.

        `retry` sets the rest before a message comes again; its `max_attempts` does not count here. `dead_letters` ends the retries of a
        message, and without it only the mailbox's own `max_delivery_count` does.
        """
        if max_messages < 1:
            raise LimitError("max_messages", max_messages, "1 or more")
        self.requests = requests
        self.name = name or requests.name
        self.clock = clock or SystemClock()
        self.heartbeat = Heartbeat(name=self.name, clock=self.clock)
        self.max_silence_s = max_silence_s
        self.on_lease_lost = OnLeaseLost(on_lease_lost)
        self.endings: dict[Ending, int] = dict.fromkeys(Ending, 0)
        """Counts the deliveries by how they ended, since this loop was made."""
        self._extension = lease_extender or LeaseExtenderConfig()
        self._extender = self._make_extender(self._extension)
        self._retry = (retry or Retry()).checked(self.name)
        self._dead_letters = dead_letters
        self._max_messages = max_messages
        self._random = random or fresh_random()
        self._condition = threading.Condition()

    @abstractmethod
    def handle(self, message: Message[BodyT, ReplyT]) -> ReplyT | None:
        """Do the work. What is returned is the reply, where the sender wants one; an exception is a failed attempt.

        Call `self.heartbeat.beat()` as the work advances. `self.lease` says whether the message is still ours.
        """

    def handle_failure(self, message: Message[BodyT, ReplyT]) -> None:
        """Takes a message that is not a reply, but the news that none will come. By default it logs it."""
        _logger.warning("%s: %s", self.name, message.failure)

    def handle_error(self, message: Message[BodyT, ReplyT], error: Exception) -> None:
        """Handles an error of the work: makes the message a dead letter when the policy says so, and otherwise lets it come again later."""
        final = (self._dead_letters or KEEP_TRYING).verdict(message.attempt, error)
        if final is not None:
            message.dead_letter(final)
            self._ended(Ending.DEAD_LETTER)
        else:
            message.nack(rest_after(error, self._retry.delay_s(message.attempt, self._random.random())))
            self._ended(Ending.FAILED)

    def lease_lost(self, message: Message[BodyT, ReplyT], reason: str) -> None:
        """Hears that the lease is gone while the work goes on. It is called once per delivery, from the beat that found it out."""
        if self.on_lease_lost is OnLeaseLost.CANCEL:
            self.heartbeat.interrupt(LeaseLostError(message.id, reason))

    @property
    def lease(self) -> LeaseHold | None:
        """The hold on the message in hand."""
        return self._lease

    @property
    def running(self) -> bool:
        return self._runner is not None

    def vitals(self) -> LoopVitals:
        """Returns the state that the probes show of this loop."""
        message = self._in_hand
        in_hand = message.id if message is not None else None
        return LoopVitals.of(self.heartbeat, self._state, error=self._error, in_hand=in_hand)

    def ladder(self, visibility_timeout: float, wait_time_seconds: float) -> Ladder:
        """Returns the timeouts that this loop would run with."""
        fitted = self._extension.for_lease(visibility_timeout)
        return Ladder(
            visibility_timeout=visibility_timeout,
            wait_time_seconds=wait_time_seconds,
            extension_interval=fitted.interval if fitted.enabled else None,
            extension=fitted.extension if fitted.enabled else None,
            max_processing_time=self.max_silence_s,
        )

    def run(
        self,
        *,
        max_iterations: int | None = None,
        visibility_timeout: float = 300,
        wait_time_seconds: float = 30,
    ) -> None:
        """Take and do work until `stop()`, or until so many polls were made. A stop that came before counts."""
        self.ladder(visibility_timeout, wait_time_seconds).check()
        with self._while_it_runs():
            self._poll(max_iterations, visibility_timeout, wait_time_seconds)

    def _while_it_runs(self) -> AbstractContextManager[None]:
        """Returns the surroundings of a run, for loops that need some."""
        return nullcontext()

    def _poll(self, max_iterations: int | None, visibility_timeout: float, wait_time_seconds: float) -> None:
        self._begin(visibility_timeout)
        polls = 0
        try:
            while not self._stop_asked and (max_iterations is None or polls < max_iterations):
                polls += 1
                messages = self._receive(wait_time_seconds)
                self.heartbeat.beat()
                self._work_through(messages)
        except (MailboxClosedError, EngineClosedError) as closed:
            _logger.info("%s ends: %s", self.name, closed)
            self._end(None)
        except BaseException as error:
            self._end(error)
            raise
        else:
            self._end(None)

    def stop(self) -> None:
        """Ask it to end after the message in hand, and wake its long poll. Returns at once."""
        with self._condition:
            self._stop_asked = True
            if self.running and self._state is not LoopState.STARTING:
                self._state = LoopState.STOPPING
            self._condition.notify_all()
        try:
            self.requests.wake()
        except TenureError as error:
            _logger.info("%s: its mailbox could not be woken: %s", self.name, error)

    def rearm(self) -> None:
        """Forget a stop that came when it had just ended, so that the next run is not ended by it."""
        with self._condition:
            if not self.running:
                self._stop_asked = False

    def shutdown(self, *, timeout: float = 30.0) -> bool:
        """Ask it to end, and wait for that; False when it is still at work then."""
        self.stop()
        if threading.current_thread() is self._runner:
            return False  # the work itself asks: it cannot wait for its own end
        until = self.clock.monotonic() + timeout
        with self._condition:
            while self.running and (left := until - self.clock.monotonic()) > 0:
                self.clock.wait(self._condition, left)
            return not self.running

    def _begin(self, visibility_timeout: float) -> None:
        with self._condition:
            if self.running:
                raise RuntimeError(f"loop {self.name!r} runs already")
            self._runner = threading.current_thread()
            self._state, self._error = LoopState.STARTING, None
        self._visibility_timeout = visibility_timeout
        self._extender = self._make_extender(self._extension.for_lease(visibility_timeout))
        # Before there is a lease: what is loaded now is not loaded in a beat, nor while a message waits.
        self._extender.prepare()
        prepare_messages()
        self.heartbeat.own()
        self.heartbeat.beat()

    def _end(self, error: BaseException | None) -> None:
        self.heartbeat.disown()
        with self._condition:
            self._state = LoopState.ENDED if error is None else LoopState.DEAD
            self._error = None if error is None else f"{type(error).__name__}: {error}"
            self._runner = None
            self._stop_asked = False  # so that it can be run again
            self._condition.notify_all()

    def _make_extender(self, config: LeaseExtenderConfig) -> LeaseExtender:
        return LeaseExtender(config, kind=self.name, on_lost=self.lease_lost, hand_over=self._hand_over)

    # Taking

    def _receive(self, wait_time_seconds: float) -> list[Message[BodyT, ReplyT]]:
        several = self._max_messages > 1
        lease = min(self._visibility_timeout, CLAIM_S) if several else self._visibility_timeout
        if self._receive_failures == 0:
            self._enter(LoopState.POLLING)
        try:
            messages = self.requests.receive(self._max_messages, lease, wait_time_seconds, provisional=several)
        except TenureError as error:
            if not error.retryable:
                raise
            self._cut_off(error)
            return []
        if self._receive_failures:
            _logger.info("%s reaches its mailbox again", self.name)
            self._receive_failures, self._error = 0, None
            self._enter(LoopState.POLLING)
        return messages

    def _cut_off(self, error: TenureError) -> None:
        self._receive_failures += 1
        self._error = f"{type(error).__name__}: {error.fact}"
        self._enter(LoopState.CUT_OFF)
        if self._receive_failures == 1:
            _logger.warning("%s cannot reach its mailbox, and goes on trying: %s", self.name, error)
        self._pause(_RECONNECT.delay_s(self._receive_failures, self._random.random()))

    def _pause(self, seconds: float) -> None:
        until = self.clock.monotonic() + seconds
        with self._condition:
            while not self._stop_asked and (left := until - self.clock.monotonic()) > 0:
                self.clock.wait(self._condition, left)

    def _enter(self, state: LoopState) -> None:
        with self._condition:
            self._state = LoopState.STOPPING if self._stop_asked else state

    # Doing

    def _work_through(self, messages: list[Message[BodyT, ReplyT]]) -> None:
        batch = Batch(messages, self._give_back)
        started = self._visibility_timeout if self._max_messages > 1 else None
        while not self._stop_asked and (message := batch.start_next(started)) is not None:
            with batch.patience(self.heartbeat, self._hand_over):
                self._work_on(message)
            self.heartbeat.beat()
        batch.give_back()

    def _give_back(self, message: Message[BodyT, ReplyT]) -> None:
        try:
            message.release()
        except TenureError as error:
            _logger.info("%s could not give back message %s: %s", self.name, message.id, error)
        else:
            self._ended(Ending.RELEASED)

    def _work_on(self, message: Message[BodyT, ReplyT]) -> None:
        self._in_hand = message
        self.heartbeat.begin_work()
        self._enter(LoopState.WORKING)
        try:
            with self._extender.attach(message, self.heartbeat, lease_s=self._visibility_timeout) as lease:
                self._lease = lease
                settle = self._attempt(message)
            self._settle(message, lease, settle)
        finally:
            self.heartbeat.resume()
            self._in_hand = self._lease = None

    def _attempt(self, message: Message[BodyT, ReplyT]) -> Callable[[], None]:
        """Do the work; how it is to be settled."""
        try:
            if message.failure is not None:
                self.handle_failure(message)
                reply = None
            else:
                reply = self.handle(message)
        except LeaseLostError as lost:
            if self._lease is not None and self._lease.lost:
                return lambda: None  # the engine would refuse any settlement
            return partial(self._fail, message, lost)  # the work raised it of its own accord
        except Exception as error:
            return partial(self._fail, message, error)
        except BaseException:
            # Something wants the whole thread to end. The work is as failed as with any other error.
            self._settle(message, self._lease, message.nack)
            raise
        return partial(self._done, message, reply)

    def _done(self, message: Message[BodyT, ReplyT], reply: ReplyT | None) -> None:
        try:
            if message.reply_to is not None and reply is not None:
                message.settle(reply)
            else:
                message.acknowledge()
        except (SerializationError, LimitError) as error:
            return self._fail(message, error)  # the work returned a value that cannot be sent as a reply
        return self._ended(Ending.DONE)

    def _fail(self, message: Message[BodyT, ReplyT], error: Exception) -> None:
        _logger.error(
            "%s: message %s failed (delivery %d)", self.name, message.id, message.delivery_count, exc_info=error
        )
        try:
            self.handle_error(message, error)
        except TenureError:
            raise
        except Exception:
            _logger.exception("%s: handle_error failed too, and message %s comes again", self.name, message.id)
            message.nack(self._retry.delay_s(message.attempt, self._random.random()))
            self._ended(Ending.FAILED)

    def _settle(self, message: Message[BodyT, ReplyT], lease: LeaseHold | None, settle: Callable[[], None]) -> None:
        """Tell the engine, again and again while the lease lasts: an hour of work is not lost to a second without network."""
        failures, now = 0, self.clock.boottime
        while lease is None or not lease.lost:
            try:
                settle()
            except ReceiptHandleExpiredError:
                break
            except TenureError as error:
                if not error.retryable:
                    raise
                if message.lease_left(now()) <= 0:
                    break
                failures += 1
                _logger.warning("%s could not settle message %s, and tries again: %s", self.name, message.id, error)
                # Not `_pause`: being asked to stop is no reason to give finished work up.
                self.clock.sleep(min(_RECONNECT.delay_s(failures, self._random.random()), message.lease_left(now())))
                self.heartbeat.beat()
            else:
                return
        reason = lease.lost_reason if lease is not None else None
        self._ended(Ending.LOST)
        _logger.warning(
            "%s: the result of message %s is discarded: %s", self.name, message.id, reason or "its receipt expired"
        )

    def _ended(self, ending: Ending) -> None:
        self.endings[ending] += 1
        count_message(self.name, ending)


class FunctionLoop(MailboxLoop[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """Calls `function(message, heartbeat)` for each message; what it returns is the reply.

    A lost lease cancels the work by default: its next beat raises `LeaseLostError`. Other settings are those of `MailboxLoop`.
    """

    def __init__(
        self,
        requests: Mailbox[BodyT, ReplyT],
        function: Callable[[Message[BodyT, ReplyT], Heartbeat], ReplyT | None],
        *,
        on_lease_lost: OnLeaseLost | str = OnLeaseLost.CANCEL,
        **settings: Any,
    ) -> None:
        super().__init__(requests, on_lease_lost=on_lease_lost, **settings)
        self._function = function

    def handle(self, message: Message[BodyT, ReplyT]) -> ReplyT | None:
        return self._function(message, self.heartbeat)
