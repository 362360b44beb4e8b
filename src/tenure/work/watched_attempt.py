"""One attempt as its supervisor sees it: extends its lease for beats, judges it, and asks it to end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from tenure.beat.lease import ExtensionOutcome
from tenure.beat.record import BeatReading, BeatRecord, Occupant
from tenure.clock import Clock
from tenure.errors import EngineWentBackError, ReceiptHandleExpiredError, TenureError
from tenure.logs import NodeLog
from tenure.work.attempt_steps import Steps
from tenure.work.attempt_watch import AttemptWatch
from tenure.work.delivery import CancelCode
from tenure.work.slots.settings import SlotSettings


class WatchedAttempt:
    """One attempt as its supervisor sees it: its record on the board, and the watch that judges it."""

    def __init__(self, record: BeatRecord, watch: AttemptWatch, serial: int) -> None:
        self.record, self.watch = record, watch
        self.serial = serial
        """The serial of the record when the attempt took it. Another serial is another attempt."""
        self.extending = False
        """True while an extension is in flight: there is never a second one."""
        self.lost_because = ""
        """The engine's words, after `ExtensionOutcome.EXPIRED`."""

    @classmethod
    def of(cls, record: BeatRecord, occupant: Occupant, serial: int, settings: SlotSettings) -> Self:
        """Begins to watch an attempt, under the lease that its claim gave it."""
        watch = AttemptWatch(
            occupant,
            settings.extend_every_s,
            settings.grace_s,
            lease_until=occupant.ticket.lease_until,
            settle_s=settings.settle_within_s,
        )
        return cls(record, watch, serial)

    def extend(
        self, extend: Callable[[], float], reading: BeatReading, lease_s: float, clock: Clock, log: NodeLog
    ) -> Steps[ExtensionOutcome]:
        """Extends the lease by a call of `extend`, which returns the boot time until which the lease is ours."""
        self.extending = True
        self.watch.extending(reading, clock.monotonic())
        try:
            until: float = yield extend
        except (ReceiptHandleExpiredError, EngineWentBackError) as error:
            # An engine that lost what it had acknowledged may have given this work to another worker: nothing here may settle it.
            self.lost_because = str(error)
            return ExtensionOutcome.EXPIRED
        except Exception as error:
            text = str(error) if isinstance(error, TenureError) else repr(error)
            log.warning(f"cannot extend the lease of {self.watch.occupant.workflow} yet: {text}")
            self.watch.extension_failed(clock.monotonic(), retry_in_s=min(1.0, lease_s / 20))
            return ExtensionOutcome.FAILED
        else:
            self.watch.extended(until)
            # The answer may come after the attempt ended. The serial keeps it from the attempt that took the record since.
            self.record.set_lease_until(self.watch.lease_until, self.serial)
            return ExtensionOutcome.GRANTED
        finally:
            self.extending = False

    def judge(self, code: CancelCode, reason: str, clock: Clock, log: NodeLog) -> None:
        """Decides that the attempt has to end, and says so. The first verdict stays: from it the grace is counted."""
        watch, occupant = self.watch, self.watch.occupant
        if watch.code is CancelCode.NONE:
            watch.cancel(code, reason, clock.monotonic())
        log.warning(f"{occupant.workflow} ({occupant.job}), attempt {occupant.attempt}: {watch.reason}")

    def ask_to_end(self, code: CancelCode) -> None:
        """Writes the cancel to the board, where the attempt finds it."""
        self.record.request_cancel(code, self.serial, self.watch.reason)
