"""Decides what gates and managers owe each other, and when they send it: each message at least once, until it is settled.

`Outbox` is the memory of both sides: what is owed to whom, and when it goes (again). The rest of this module derives the messages
that a gate owes its datacenters from the gate's state, so that a successor sends what its predecessor did not: a submission until
the datacenter has answered, an order until it has obeyed, a decision until the datacenter is terminal. It is safe to send either any number of times.
`nodes.outbox_lane` sends what is due.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

import msgspec

from tenure.backoff import delay_after
from tenure.jobs.decisions import RULES, Rules
from tenure.jobs.gate_decisions import order_for, owes_order
from tenure.jobs.gate_tracker import GateJobTracker
from tenure.jobs.messages import JobGlobalCancel, JobGlobalTimeout, JobOrder, JobStatusQuery
from tenure.jobs.model import GateJobTrackingInfo, JobSubmission
from tenure.jobs.settings import GateSettings
from tenure.jobs.states import JobState
from tenure.timers import Timers

FAILED_PAUSE_S = 30.0
"""Seconds until a debt is sent again when our own code fails to say how many."""

KeyT = TypeVar("KeyT")
DebtT = TypeVar("DebtT")


class Outbox(Generic[KeyT, DebtT]):
    """Holds what is owed, by a key that names the recipient and the job, and decides when each debt is sent.

    A new debt is due at once. `due` hands it out and sets its next time in the same step, so a request or an answer that is lost costs a
    pause and nothing else. Only `settle` ends a debt. It is one leader's memory: the next leader derives the debts from its journal.
    """

    def __init__(self, pause_s: Callable[[DebtT, int], float]) -> None:
        """`pause_s` returns the seconds between the n-th sending of a debt and the next one."""
        self._pause_s = pause_s
        self._debts: dict[KeyT, tuple[DebtT, int]] = {}
        """Maps each key to what is owed, and how often it was sent since the pauses last began."""
        self._timers: Timers[KeyT] = Timers()

    def owe(self, key: KeyT, debt: DebtT, now: float, *, within_s: float = 0.0) -> None:
        """Owes `debt` in place of anything else under this key, due after `within_s`. The same debt again changes nothing."""
        known = self._debts.get(key)
        if known is None or known[0] != debt:
            self._debts[key] = debt, 0
            self._timers.set(key, min(now + within_s, self._timers.due(key)))

    def settle(self, key: KeyT) -> None:
        """Ends a debt: nothing is sent under this key any more."""
        self._debts.pop(key, None)
        self._timers.cancel(key)

    def hurry(self, keys: Iterable[KeyT], now: float) -> None:
        """Makes these debts due at once, and starts their pauses again at the shortest."""
        for key in keys:
            self._debts[key] = self._debts[key][0], 0
            self._timers.set(key, now)

    def owed(self, key: KeyT) -> DebtT | None:
        return self._debts.get(key, (None, 0))[0]

    def __iter__(self) -> Iterator[KeyT]:
        return iter(list(self._debts))

    def next_due(self) -> float:
        return self._timers.next_due()

    def due(self, now: float, failed: dict[KeyT, Exception]) -> list[tuple[KeyT, DebtT]]:
        """Returns what is to be sent now. Each comes again after its pause, unless it is settled before.

        A debt whose pause cannot be computed is named in `failed`, too, and comes again after `FAILED_PAUSE_S`: it must not hold up the
        debts behind it.
        """
        found = []
        for key in self._timers.pop_due(now):
            debt, sent = self._debts[key]
            self._debts[key] = debt, sent + 1
            try:
                pause_s = self._pause_s(debt, sent + 1)
            except Exception as error:
                failed[key], pause_s = error, FAILED_PAUSE_S
            self._timers.set(key, now + pause_s)
            found.append((key, debt))
        return found


GateMessage = JobSubmission | JobGlobalTimeout | JobGlobalCancel | JobStatusQuery | JobOrder


class OwedKind(StrEnum):
    """The kind of a message that a datacenter has not answered."""

    SUBMISSION = "submission"
    QUERY = "query"
    TIMEOUT = "timeout"
    CANCEL = "cancel"
    ORDER = "order"


_KINDS: dict[type[GateMessage], OwedKind] = {
    JobSubmission: OwedKind.SUBMISSION,
    JobStatusQuery: OwedKind.QUERY,
    JobGlobalTimeout: OwedKind.TIMEOUT,
    JobGlobalCancel: OwedKind.CANCEL,
    JobOrder: OwedKind.ORDER,
}


class Owed(NamedTuple):
    """One message that a datacenter has not answered yet."""

    job_id: str
    datacenter: str
    message: GateMessage


def owed(tracker: GateJobTracker, info: GateJobTrackingInfo, rules: Rules = RULES) -> list[Owed]:
    """Returns the messages that the gate still has to send about one job."""
    if info.state.terminal:
        return []
    if info.decided is not None:
        return [Owed(info.job_id, dc, decision_for(tracker, info, dc, rules)) for dc in info.running]
    opening = [Owed(info.job_id, dc, opening_for(tracker, info)) for dc in info.running if not info.dc_heard[dc]]
    orders = [dc for dc in info.running if info.dc_heard[dc] and owes_order(info, dc)]
    return opening + [Owed(info.job_id, dc, order_for(info, tracker.epoch)) for dc in orders]


def decision_for(
    tracker: GateJobTracker, info: GateJobTrackingInfo, dc: str, rules: Rules = RULES
) -> JobGlobalTimeout | JobGlobalCancel:
    """Returns the decision as the gate sends it to that datacenter: with the highest token seen from it, or none."""
    if info.decided is JobState.CANCELLED:
        return JobGlobalCancel(
            job_id=info.job_id,
            reason=info.decided_reason,
            cancelled_at=info.decided_at,
            gate_epoch=tracker.epoch,
        )
    token = rules.echoed_token(info.decided_from_reports, info.dc_fence_tokens[dc], info.timeout_fence_token)
    return JobGlobalTimeout(
        job_id=info.job_id,
        reason=info.decided_reason,
        timed_out_at=info.decided_at,
        fence_token=token,
        gate_epoch=tracker.epoch,
    )


def opening_for(tracker: GateJobTracker, info: GateJobTrackingInfo) -> JobSubmission | JobStatusQuery:
    if info.submission is None:  # rebuilt from another datacenter's report: the gate can only ask
        return JobStatusQuery(job_id=info.job_id, gate_epoch=tracker.epoch)
    return msgspec.structs.replace(
        info.submission,
        gate_epoch=tracker.epoch,
        target_datacenters=tuple(info.target_datacenters),
        global_submitted_at=info.submitted_at,
    )


class GateOutbox:
    """The outbox of a leading gate: at once when a message is new, then after 1, 2, 4, … 30 s."""

    def __init__(self, settings: GateSettings, rules: Rules = RULES) -> None:
        self.settings = settings
        self.rules = rules
        self._outbox: Outbox[tuple[str, str], GateMessage] = Outbox(self._pause_s)
        """By job and datacenter."""
        self._owed: defaultdict[tuple[str, type[GateMessage]], int] = defaultdict(int)
        self._passed_on: Counter[str] = Counter()

    def _pause_s(self, message: GateMessage, sent: int) -> float:
        return delay_after(sent, first_s=self.settings.resend_first, most_s=self.settings.resend_most)

    def refresh(self, tracker: GateJobTracker, job_id: str, now: float) -> None:
        """Recomputes the messages that are owed for a job that has changed. A new or changed message is due at once."""
        info = tracker.jobs.get(job_id)
        wanted = {item.datacenter: item.message for item in owed(tracker, info, self.rules)} if info else {}
        for dc in info.target_datacenters if info else [key[1] for key in self._outbox if key[0] == job_id]:
            key, message = (job_id, dc), wanted.get(dc)
            known = self._outbox.owed(key)
            if known == message:
                continue
            if known is not None:
                self._owed[dc, type(known)] -= 1
                self._passed_on[dc] += type(known) is JobSubmission
            if message is None:
                self._outbox.settle(key)
            else:
                self._owed[dc, type(message)] += 1
                self._outbox.owe(key, message, now)

    @property
    def counts(self) -> Counter[tuple[str, OwedKind]]:
        """Counts the messages that each datacenter has not answered yet. Its cost does not depend on their number."""
        return Counter({(dc, _KINDS[kind]): count for (dc, kind), count in self._owed.items()})

    def take_passed_on(self) -> Counter[str]:
        """Returns the number of submissions that each datacenter answered, or that were withdrawn, since the last call."""
        taken, self._passed_on = self._passed_on, Counter()
        return taken

    def hurry(self, datacenter: str, now: float) -> None:
        """Makes every message that a datacenter has not answered due at once, because it is back."""
        self._outbox.hurry([key for key in self._outbox if key[1] == datacenter], now)

    def next_due(self) -> float:
        return self._outbox.next_due()

    def due(self, now: float, failed: dict[str, Exception]) -> list[Owed]:
        """Returns the messages to send now. Each comes again later, unless `refresh` finds that it is no longer owed.

        A job on whose message our own code fails goes into `failed`.
        """
        unsent: dict[tuple[str, str], Exception] = {}
        due = [Owed(job_id, dc, message) for (job_id, dc), message in self._outbox.due(now, unsent)]
        failed.update((job_id, error) for (job_id, _), error in unsent.items())
        return due
