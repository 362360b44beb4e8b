"""The observer at the engine: sees each message when it is sent, claimed and settled, by the engine's own clock.

Nodes only see answers, which travel and get lost; what really happened is here. It hangs on the memory engine that all nodes share, and
changes nothing.
"""

from __future__ import annotations

import msgspec

from tenure.engines.mailbox_records import LEASED, DeliveryStage, MessageRecord
from tenure.engines.mailbox_state import MailboxState
from tenure.engines.memory.engine import MemoryEngine
from tenure.nodes.manager.ledger import RESULTS
from tenure.work.delivery import WorkItem, WorkResult
from tests.worlds.datacenter.journal_watch import JournalWatch, Require
from tests.worlds.datacenter.stage import Stage as Attempt
from tests.worlds.datacenter.times import DRIFT_S, SLOTS

_result = msgspec.json.Decoder(WorkResult)


class EngineWatch:
    """One for each run, made before anything is sent."""

    def __init__(self, engine: MemoryEngine, journal: JournalWatch, require: Require) -> None:
        self._journal, self._require, self._engine = journal, require, engine
        self._sent: list[tuple[str, int]] = []
        self._fences: dict[tuple[str, int, int], str] = {}
        self._work = engine.box(SLOTS.queue).state = WatchedWork(SLOTS.queue, engine, self)
        engine.box(RESULTS).state = WatchedResults(RESULTS, engine, self)

    def sent(self, key: str, generation: int) -> None:
        """Notes a message. It may come in the very step that appends its decision, so it is checked when the journal was read after that step."""
        self._sent.append((key, generation))

    def check(self) -> None:
        """Checks the messages of the step that just happened. The journal was read."""
        sent, self._sent = self._sent, []
        for key, generation in sent:
            self._check_sent(key, generation)

    def _check_sent(self, key: str, generation: int) -> None:
        """Nothing is sent before the append that decided it, nor after its job was cleaned up."""
        job_id, _, workflow = key.rpartition("/")
        account = self._journal.accounts.get(job_id)
        if account is None:
            self._require(False, f"{key} was sent, and the journal does not know its job")
            return
        attempt = account.tracks[workflow].attempt
        if (info := self._journal.book.jobs.get(job_id)) is not None:
            generation -= info.workflows[workflow].withdrawn  # each message that was taken back raised it
        self._require(generation <= attempt, f"{key} was sent as attempt {generation}, and {attempt} is decided")
        self._require(not account.cleaned, f"{key} was sent after its job had ended and was cleaned up")

    def claimed(self, key: str) -> None:
        account = self._journal.accounts.get(key.rpartition("/")[0])
        gone = account is None or account.cleaned
        self._require(not gone, f"{key} was claimed after it had been cleaned up")

    def answered(self, result: WorkResult, at: float) -> None:
        if result.ok:  # work that was suspended has no result yet
            self._journal.posted.setdefault((result.job_id, result.workflow_id, result.attempt), at)

    # What slots do

    def counts(self, attempt: Attempt) -> None:
        """A fence is given out once. Before its first extension a delivery has none to use."""
        receipt, number = attempt.ticket.receipt_handle, attempt.attempt.delivery.fence
        fence = (f"{attempt.item.job_id}/{attempt.item.workflow_id}", *number)
        before = self._fences.setdefault(fence, receipt)
        self._require(before == receipt, f"two deliveries of {fence[0]} have one fence {number}")

    def works(self, attempt: Attempt) -> None:
        """While a slot trusts its lease by its own clock, the engine has given it to nobody else."""
        left = attempt.watch.lease_until - attempt.clock.boottime()
        if left <= DRIFT_S:
            return
        record = self._work.records.get(attempt.ticket.id)
        self._require(
            record is None or record.state is not LEASED or record.receipt == attempt.ticket.receipt_handle,
            f"{attempt.item.job_id} is held by {attempt.incarnation} for {left:.3f} s more, and was given to somebody else",
        )

    def is_stale(self, item: WorkItem) -> bool:
        account = self._journal.accounts.get(item.job_id)
        return account is not None and item.attempt < account.tracks[item.workflow_id].attempt

    def is_empty(self) -> bool:
        """Whether no work and no result is left anywhere."""
        now = self._engine.clock.boottime()
        return not any(sum(self._engine.box(name).state.depth(now)) for name in (SLOTS.queue, RESULTS))


class WatchedWork(MailboxState):
    """The mailbox of work, which tells what becomes of it."""

    def __init__(self, name: str, engine: MemoryEngine, watch: EngineWatch) -> None:
        super().__init__(name, engine.post, engine.epoch)
        self._watch = watch

    def admit(self, record: MessageRecord, now: float) -> None:
        super().admit(record, now)
        self._watch.sent(record.key or "", record.generation)

    def claim(
        self,
        now: float,
        lease: float,
        receipt: str,
        stage: DeliveryStage,
        limit: int | None,
        apart: bool = True,
        first: bool = True,
    ) -> MessageRecord | None:
        record = super().claim(now, lease, receipt, stage, limit, apart, first)
        if record is not None and record.key is not None:
            self._watch.claimed(record.key)
        return record


class WatchedResults(MailboxState):
    """The mailbox of results, which tells when each came."""

    def __init__(self, name: str, engine: MemoryEngine, watch: EngineWatch) -> None:
        super().__init__(name, engine.post, engine.epoch)
        self._watch, self._since = watch, engine.epoch

    def add(self, record: MessageRecord, now: float, delay: float = 0.0) -> None:
        super().add(record, now, delay)
        if not record.is_failure:
            self._watch.answered(_result.decode(record.body), self._since + now)
