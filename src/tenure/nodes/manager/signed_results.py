"""Checks the signatures of results, and follows up the attempts whose results were refused for them (decision 0610).

`SignedResults` exists only where the manager has keys. `UnsignedFollowUps` always does: a leader without keys may take over from one that had some.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from tenure.attempt_data import RESULTS_STORE, result_key
from tenure.engines.aio import Calls
from tenure.engines.checked_mailbox import UNDECODABLE
from tenure.engines.contracts import Mailbox, Message, Withdrawal
from tenure.jobs import Decision
from tenure.jobs.attempts import RecordWithdrawn
from tenure.jobs.decisions import Command
from tenure.jobs.model import JobInfo, WorkflowRecord
from tenure.jobs.outbox import mailbox_of, message_key
from tenure.jobs.states import WorkflowState
from tenure.jobs.unsigned_results import FailUnsigned, RefuseUnsigned, to_follow_up
from tenure.jobs.work_indexes import WorkflowKey
from tenure.nodes.manager.ledger import JobMandate, ResultIntake
from tenure.nodes.manager.result_commands import Recorded, attempt_of
from tenure.nodes.term_leader import JobStrikes
from tenure.work.delivery import WorkItem, WorkResult
from tenure.work.result_signatures import ResultKeys, digest_of, why_unsigned

LOOK_AGAIN_S = 5.0
MOST_LOOKS = 100
LOOKING = "looking for the message of an attempt whose result was not signed"
STILL_THERE = "the engine says that it gave its message up, and still has it"
_decode = msgspec.json.Decoder(WorkResult).decode
Mailboxes = Callable[[str], Mailbox[WorkItem, WorkResult]]
Result = Message[WorkResult, WorkItem]


class SignedResults:
    """The part of a leader's intake that decides which results are believed. It opens them itself: a signature is about bytes."""

    def __init__(self, keys: ResultKeys, mandate: JobMandate, mailbox: Mailboxes) -> None:
        self._keys, self._ledger, self._mailbox = keys, mandate.ledger, mailbox
        self._calls = mandate.environment.calls
        self._store = mandate.environment.engine.store(RESULTS_STORE)
        self._why: dict[str, str] = {}
        """Maps the receipt of each open result to the reason to refuse it; empty for none."""

    def open(self, messages: Sequence[Result]) -> list[tuple[Result, str]]:
        """Decodes and checks what came as bytes. Returns those that are no results, each with the reason."""
        unreadable = []
        for message in messages:
            if message.failure is not None:
                continue
            encoded = bytes(message.body)  # type: ignore[call-overload]  # the mailbox was opened for bytes
            read = read_reply(encoded)
            if isinstance(read, str):
                unreadable.append((message, read))
                continue
            message.body = read
            self._why[message.receipt_handle] = why_unsigned(self._keys, encoded, read)
        return unreadable

    def close(self, messages: Sequence[Result]) -> None:
        for message in messages:
            self._why.pop(message.receipt_handle, None)

    async def instead(self, message: Result, command: Recorded) -> Command | None:
        """Returns the command for a result that is not to be believed; None for one that is."""
        if message.failure is not None:
            return await self._instead_of_dead_letter(message, command)
        why = self._why[message.receipt_handle] or await self._why_not_stored(message.body)
        delivery = getattr(command, "delivery", 0)
        return self._refusal(command, why, message.body.worker, delivery) if why else None

    async def _why_not_stored(self, reply: WorkResult) -> str:
        """Compares a result that is too large for its reply with the digest that was signed."""
        if not reply.stored:
            return ""
        found = await self._calls.run(self._store.get, result_key(reply.job_id, reply.workflow_id, reply.attempt))
        if found is None:
            return "its result is not in the store"
        return "" if digest_of(found) == reply.digest else "the result in the store is not the one that was signed"

    async def _instead_of_dead_letter(self, message: Result, command: Recorded) -> Command | None:
        """The engine writes dead letters, so nobody signs them. They are believed where the engine has no message of that attempt any more."""
        about = attempt_of(message)
        info = self._ledger.book.jobs.get(about[0]) if about is not None else None
        workflow = info.workflows.get(about[1]) if info is not None and about is not None else None
        if info is None or workflow is None or message.failure is None:
            return None
        if message.failure.generation != workflow.generation:
            return None  # it is about an earlier one, and will be refused as that
        found = await look_for(self._calls, self._mailbox, info, workflow)
        if found is Withdrawal.ABSENT:
            return None
        if found is Withdrawal.WITHDRAWN and workflow.state is WorkflowState.QUEUED:
            # Nobody had claimed it, and the look took it back: it is sent again.
            return RecordWithdrawn(by="leader", job_id=info.id, workflow=workflow.spec.name, attempt=workflow.attempt)
        return self._refusal(command, STILL_THERE, "", 0)

    @staticmethod
    def _refusal(command: Recorded, why: str, worker: str, delivery: int) -> RefuseUnsigned:
        return RefuseUnsigned(
            by="leader",
            job_id=command.job_id,
            workflow=command.workflow,
            attempt=command.attempt,
            worker=worker,
            delivery=delivery,
            why=why,
        )


def read_reply(encoded: bytes) -> WorkResult | str:
    """Returns a reply, or why it is none. The engine has looked at the bytes with fewer calls above it, so they may be too deep here and not there."""
    try:
        return _decode(encoded)
    except UNDECODABLE as error:
        return f"undecodable: {error}"


def signed_results(keys: ResultKeys | None, mandate: JobMandate, mailbox: Mailboxes) -> SignedResults | None:
    return None if keys is None else SignedResults(keys, mandate, mailbox)


class UnsignedFollowUps:
    """Part of a leader: `tend` is one of its steps. It reads off the book what is to be followed up, so a takeover loses nothing."""

    def __init__(
        self, mandate: JobMandate, strikes: JobStrikes[Decision], results: ResultIntake, mailbox: Mailboxes
    ) -> None:
        self._ledger, self._strikes, self._results, self._mailbox = mandate.ledger, strikes, results, mailbox
        self._calls, self._now = mandate.environment.calls, mandate.now
        self._looked_at = -math.inf

    def next_due(self) -> float:
        return self._looked_at + LOOK_AGAIN_S if self._ledger.book.unsigned.noted else math.inf

    async def tend(self) -> None:
        """Looks for the messages. An attempt whose message is gone has failed; one whose message nobody had claimed is sent again."""
        if not self._ledger.book.unsigned.noted or self._now() < self.next_due():
            return
        self._looked_at = self._now()
        gone: list[FailUnsigned | RecordWithdrawn] = []
        for key in await self._ledger.read(partial(to_follow_up, limit=MOST_LOOKS)):
            await self._strikes.attempt(key[0], partial(self._look, key, gone), LOOKING)
        if not gone:
            return
        looked_at = self._now()
        # The message may be gone because its true result has come: that counts, so it is recorded first.
        await self._results.drain()
        if self._results.drained_until >= looked_at:
            await self._strikes.commit_all(gone, LOOKING)

    async def _look(self, key: WorkflowKey, gone: list[FailUnsigned | RecordWithdrawn]) -> None:
        info = self._ledger.book.jobs.get(key[0])
        if info is None:
            return
        workflow = info.workflows[key[1]]
        attempt, generation, state = workflow.attempt, workflow.generation, workflow.state
        found = await look_for(self._calls, self._mailbox, info, workflow)
        if found is Withdrawal.WITHDRAWN and state is WorkflowState.QUEUED:
            gone.append(RecordWithdrawn(by="leader", job_id=key[0], workflow=key[1], attempt=attempt))
        elif found is not Withdrawal.LEASED:
            gone.append(
                FailUnsigned(by="leader", job_id=key[0], workflow=key[1], attempt=attempt, generation=generation)
            )


async def look_for(calls: Calls, mailbox: Mailboxes, info: JobInfo, workflow: WorkflowRecord) -> Withdrawal:
    """Asks the engine for the message of an attempt. There is no look that changes nothing: a message that nobody has claimed is taken back by it."""
    key = message_key(info.id, workflow.spec.name)
    return await calls.run(mailbox(mailbox_of(info, workflow)).withdraw, key, workflow.generation)
