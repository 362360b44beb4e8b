"""Keeps a message leased exactly as long as its work beats (document 003).

A lease is renewed on a beat and never by a timer: work that hangs loses its message, which is then delivered again. This file decides how
often a beat becomes a renewal, and what the outcome of a renewal means. It does not stop the work: it tells the holder of a lost lease.

A renewal happens on a beat, at most once per interval. A beat that comes just before the interval is over is skipped, so the
silence that a lease really survives is the lease less the interval. The longer the gaps that this work shows, the shorter the interval
has to be for the next gap still to fit.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, Protocol

from tenure.beat.heartbeat import BeatWatcher, Heartbeat
from tenure.beat.metrics import LeaseMetrics
from tenure.engines.contracts import MAX_VISIBILITY_S
from tenure.errors import LimitError, ReceiptHandleExpiredError

DEFAULT_INTERVAL_S = 60.0
"""Document 003's `LeaseExtenderConfig.interval`."""

# Of a gap that was seen once, the next may be this much longer.
_GAP_HEADROOM = 1.25
# How fast an old, long gap is forgotten: each later observation takes this part of the excess away.
_FORGETTING = 0.1


def derived_interval(lease_s: float) -> float:
    """Returns the interval where none was chosen: a minute, or a third of a shorter lease, so that two renewals may fail."""
    return min(DEFAULT_INTERVAL_S, lease_s / 3)


def remembered_gap(remembered_s: float, observed_s: float) -> float:
    """Returns the gap to expect: a longer one is taken over at once, a shorter one only slowly."""
    if observed_s >= remembered_s:
        return observed_s
    return remembered_s - (remembered_s - observed_s) * _FORGETTING


def adapted_interval(interval_s: float, lease_s: float, gap_s: float) -> float:
    """Returns the interval that lets a gap like the last ones still fit into the lease; never longer than the one that was set.

    Work whose gaps approach the lease is renewed on every beat (0): more cannot be done from here, and it is warned about.
    """
    return max(0.0, min(interval_s, lease_s - gap_s * _GAP_HEADROOM))


_logger = logging.getLogger(__name__)

_DEFAULT_EXTENSION_S = 300


@dataclass(frozen=True, slots=True)
class LeaseExtenderConfig:
    """Sets how beats renew a lease.

    Attributes:
        interval: Least seconds between renewals, also after one that failed.
        extension: Seconds to ask for, from now; a longer lease is never shortened by it.
        enabled: Whether beats renew the lease at all.
        max_hold_s: Renew for at most this long after the work began, beats or not. None: the beats decide.
    """

    interval: float = DEFAULT_INTERVAL_S
    extension: float = _DEFAULT_EXTENSION_S
    enabled: bool = True
    max_hold_s: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.interval < math.inf:
            raise LimitError("LeaseExtenderConfig.interval", self.interval, "0 seconds or more")
        if not 0 < self.extension <= MAX_VISIBILITY_S:
            raise LimitError(
                "LeaseExtenderConfig.extension", self.extension, f"above 0 and at most {MAX_VISIBILITY_S} s"
            )
        if self.max_hold_s is not None and not self.max_hold_s > 0:
            raise LimitError("LeaseExtenderConfig.max_hold_s", self.max_hold_s, "above 0 seconds, or None")

    def for_lease(self, lease_s: float) -> LeaseExtenderConfig:
        """Returns these settings fitted to a lease: what was left at the document's value is derived from the lease instead."""
        chosen = LeaseExtenderConfig()
        return replace(
            self,
            interval=derived_interval(lease_s) if self.interval == chosen.interval else self.interval,
            extension=lease_s if self.extension == chosen.extension else self.extension,
        )


class ExtensionOutcome(StrEnum):
    """The result of one attempt to renew a lease."""

    GRANTED = "granted"
    EXPIRED = "expired"  # the receipt is dead: nothing more is tried
    FAILED = "failed"  # the engine did not answer: tried again after the interval


@dataclass(slots=True)
class ExtensionCounts:
    """Counts how often a lease was to be renewed, and how that went."""

    attempts: int = 0
    granted: int = 0
    expired: int = 0
    failed: int = 0

    @property
    def failures(self) -> int:
        return self.expired + self.failed


class ExtendableMessage(Protocol):
    """The part of a message that an extender needs. Messages of our engines have it, and so do those of `tenure.contrib`."""

    @property
    def id(self) -> str: ...

    def extend_visibility(self, seconds: float, /) -> Any: ...

    def lease_left(self, now: float) -> float: ...


class LeaseHold:
    """Tells the holder of one attached message whether the message is still its own."""

    __slots__ = ("_heartbeat", "_message", "_reason")

    def __init__(self, message: ExtendableMessage | None, heartbeat: Heartbeat) -> None:
        self._message = message
        self._heartbeat = heartbeat
        self._reason: str | None = None

    @property
    def lost(self) -> bool:
        """True when the engine said so, or our own clock passed the expiry: then another delivery may be running."""
        return self.lost_reason is not None

    @property
    def lost_reason(self) -> str | None:
        if self._reason is None and self._message is not None and self._remaining() <= 0:
            return "its lease ran out by our own clock"
        return self._reason

    def _remaining(self) -> float:
        return self._message.lease_left(self._heartbeat.clock.boottime()) if self._message is not None else math.inf


class LeaseExtender:
    """Extends message visibility when heartbeats occur. Attach it to one message at a time.

    Example::

        extender = LeaseExtender(LeaseExtenderConfig(interval=30))
        heartbeat = Heartbeat()

        with extender.attach(message, heartbeat) as lease:
            for part in work:
                do(part)
                heartbeat.beat()        # now and then one of these renews the lease
                if lease.lost:
                    break
    """

    def __init__(
        self,
        config: LeaseExtenderConfig | None = None,
        *,
        kind: str = "message",
        on_lost: Callable[[Any, str], object] | None = None,
        metrics: LeaseMetrics | None = None,
        hand_over: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        """`hand_over` takes the calls to the engine where a beat must not wait for them, as in an event loop; it makes them in a thread."""
        self._config = config if config is not None else LeaseExtenderConfig()
        self._kind = kind
        self._on_lost = on_lost
        self._metrics = metrics if metrics is not None else LeaseMetrics(kind)
        self._hand_over = hand_over
        self.counts = ExtensionCounts()
        """Over all messages that this extender was attached to."""
        self.expected_gap_s = 0.0
        """The gap between beats that this kind of work has shown: the interval adapts to it."""
        self._lock = threading.Lock()
        self._attached: _Attachment | None = None

    @property
    def config(self) -> LeaseExtenderConfig:
        return self._config

    def prepare(self) -> None:
        """Load what is only needed later. `attach` does it too; a loop does it before it takes a message."""
        if self._config.enabled:
            self._metrics.prepare()

    @contextmanager
    def attach(
        self, msg: ExtendableMessage, heartbeat: Heartbeat, *, lease_s: float | None = None
    ) -> Iterator[LeaseHold]:
        """While attached, a beat renews the lease: the first one at once, then at most one per interval.

        `lease_s` is the lease that the message was received with, where known: gaps between beats are measured against it.
        """
        if not self._config.enabled:
            yield LeaseHold(None, heartbeat)
            return
        self.prepare()
        attachment = _Attachment(self, msg, heartbeat, lease_s)
        with self._lock:
            if self._attached is not None:
                raise RuntimeError("LeaseExtender already attached")
            self._attached = attachment
        attachment.begin()
        try:
            yield attachment.hold
        finally:
            attachment.end()
            with self._lock:
                self._attached = None

    def _count(self, outcome: ExtensionOutcome, during: str) -> None:
        self.counts.attempts += 1
        setattr(self.counts, outcome, getattr(self.counts, outcome) + 1)
        self._metrics.count(outcome, during)


class _Attachment:
    """One message while it is attached: the rate limit, the call in flight, and the end of it."""

    def __init__(
        self, extender: LeaseExtender, msg: ExtendableMessage, heartbeat: Heartbeat, lease_s: float | None
    ) -> None:
        self.hold = LeaseHold(msg, heartbeat)
        self._extender = extender
        self._config = extender._config
        self._msg = msg
        self._heartbeat = heartbeat
        self._lease_s = max(lease_s or 0.0, self._config.extension)
        self._in_flight = threading.Lock()
        self._missed = False  # a renewal was due while another was in flight
        self._warned = False
        self._since = 0.0
        self._watch: BeatWatcher | None = None

    def begin(self) -> None:
        self._since = self._heartbeat.clock.monotonic()
        # Due at once. A "last extension" of 0.0 would mean: never, on a machine that booted less than an interval ago.
        self._watch = self._heartbeat.watch(self._on_beat)

    def end(self) -> None:
        if self._watch is not None:
            self._heartbeat.unwatch(self._watch)
        self._judge_gap(min(self._heartbeat.unexplained(), self._heartbeat.clock.monotonic() - self._since))
        # A renewal in flight belongs to this message. Wait for it, so that it cannot run into the acknowledgement.
        with self._in_flight:
            self._watch = None

    def _on_beat(self, now: float, gap: float) -> None:
        # Two threads may both find the renewal due; one makes the call, the other goes back to its work.
        if not self._in_flight.acquire(blocking=False):
            self._missed = True
            if not self._in_flight.acquire(blocking=False):
                return  # whoever has it looks at what was missed after letting go
        handed_over = False
        try:
            watch = self._watch
            if watch is None or now < watch.due:
                return
            self._missed = False
            self._judge_gap(min(gap, now - self._since))  # what was before us is not this work's silence
            # Before the call: beats of other threads skip it meanwhile, and a failed attempt waits for the interval too.
            watch.due = now + self._interval()
            if self._extender._hand_over is None:
                self._renew(watch, now)
            else:
                self._extender._hand_over(partial(self._renew_elsewhere, watch, now))
                handed_over = True
        finally:
            if not handed_over:
                self._let_go()

    def _renew_elsewhere(self, watch: BeatWatcher, now: float) -> None:
        try:
            self._renew(watch, now)
        finally:
            self._heartbeat.rearm()  # not inside a beat: nobody else looks when the next one is due
            self._let_go()

    def _let_go(self) -> None:
        self._in_flight.release()
        # A silence that was declared while the call was in flight: no beat will come to ask for it again.
        if self._missed and self._heartbeat.silent is not None:
            self._on_beat(self._heartbeat.clock.monotonic(), 0.0)

    def _interval(self) -> float:
        return adapted_interval(self._config.interval, self._config.extension, self._extender.expected_gap_s)

    def _renew(self, watch: BeatWatcher, now: float) -> None:
        config = self._config
        if config.max_hold_s is not None and now - self._since >= config.max_hold_s:
            watch.due = math.inf
            _logger.warning(
                "Message %s (%s) was held for %g seconds, and is not renewed any more",
                self._msg.id,
                self._kind,
                config.max_hold_s,
            )
            return
        seconds = self._seconds(now)
        try:
            self._msg.extend_visibility(seconds)
        except ReceiptHandleExpiredError as error:
            _logger.warning("Lease extension failed for message %s: receipt handle expired", self._msg.id)
            self._lose(watch, error.reason)
            self._extender._count(ExtensionOutcome.EXPIRED, self._heartbeat.activity)
        except Exception:
            _logger.exception("Lease extension failed for message %s", self._msg.id)
            self._after_failure(watch, now)
            self._extender._count(ExtensionOutcome.FAILED, self._heartbeat.activity)
        else:
            _logger.debug("Extended visibility for message %s by %g seconds", self._msg.id, seconds)
            self._extender._count(ExtensionOutcome.GRANTED, self._heartbeat.activity)

    def _seconds(self, now: float) -> float:
        """Returns the seconds to ask for: the extension, or enough to cover a declared silence and the first beat after it."""
        silence = self._heartbeat.silent
        wanted = self._config.extension
        if silence is not None:
            wanted = max(wanted, silence.until - now + self._config.interval)
        return min(wanted, MAX_VISIBILITY_S)

    def _after_failure(self, watch: BeatWatcher, now: float) -> None:
        """Notes that the engine did not answer. Until it does, our own clock decides when the lease is gone."""
        remaining = self.hold._remaining()
        if remaining <= 0:
            self._lose(watch, "its lease ran out by our own clock, and the engine did not answer")
        else:
            watch.due = min(watch.due, now + remaining)

    def _lose(self, watch: BeatWatcher, reason: str) -> None:
        watch.due = math.inf
        self.hold._reason = reason
        if self._extender._on_lost is not None:
            self._extender._on_lost(self._msg, reason)

    def _judge_gap(self, gap: float) -> None:
        self._extender.expected_gap_s = remembered_gap(self._extender.expected_gap_s, gap)
        if gap > self._lease_s and not self._warned:
            self._warned = True
            _logger.warning(
                "Message %s (%s) was silent for %.1f seconds, longer than its lease of %g seconds: it may have been delivered "
                "again. Beat more often, declare the silence, or give it a longer lease",
                self._msg.id,
                self._kind,
                gap,
                self._lease_s,
            )

    @property
    def _kind(self) -> str:
        return self._extender._kind
