"""Takes the submissions that came through the engine: from a user's own transaction, or from a program that has the engine's URL.

They are commands like any other. The leader acknowledges a message after its append, so a leader that dies in between leaves the message to the
next one, which finds the job known. A submission that cannot be accepted becomes a dead letter with the reason: its sender is gone.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenure.bound_checks import check
from tenure.client.transactions import SUBMISSIONS
from tenure.engines.contracts import Mailbox, Message
from tenure.errors import ConfigurationError, TenureError
from tenure.jobs.arguments import check_not_stored
from tenure.jobs.model import JobSubmission
from tenure.jobs.submission import SubmitJob
from tenure.nodes.loop_keeper import FailedOn, concerns_all
from tenure.nodes.manager.leader import DatacenterLeader
from tenure.nodes.manager.leader_parts import LeaderPart
from tenure.nodes.manager.ledger import JobMandate
from tenure.nodes.stored_values import RememberedIds

WAIT_S = 30.0
"""The seconds for which one receive waits for a submission."""
AT_ONCE = 100
MOST_DELIVERIES = 10
"""A submission that our own code fails on this often becomes a dead letter."""
LATER_S = 5.0
"""The seconds after which a submission is tried again for which there is no room now."""
Submission = Message[JobSubmission, None]


class SubmissionIntake(LeaderPart):
    """One loop of a leader."""

    def __init__(self, mandate: JobMandate, leader: DatacenterLeader) -> None:
        environment = mandate.environment
        self._ledger, self._failures, self._lease_s = leader.ledger, mandate.keeper.failures, mandate.term_s
        self._calls, self._log = environment.calls, environment.log
        self._ids = RememberedIds(environment.engine, environment.calls)
        self._mailbox: Mailbox[JobSubmission, None] = environment.engine.mailbox(
            SUBMISSIONS, JobSubmission, max_delivery_count=MOST_DELIVERIES
        )

    async def run(self) -> None:
        while True:
            messages = await self._calls.run(self._mailbox.receive, AT_ONCE, self._lease_s, WAIT_S)
            if messages:
                await self.take(messages)

    async def take(self, messages: Sequence[Submission]) -> None:
        """Commits the submissions in as few appends as they need. Each has a fate of its own."""
        own = []
        for message in messages:
            if (error := why_not(message.body)) is not None:
                await self._refuse(message, error)
            else:
                own.append(message)
        former = await self._ids.find(self._ledger.book, [one.body for one in own])
        commands = [
            SubmitJob(submission=one.body, by=one.body.submitted_by, former=former.get(one.body.job_id)) for one in own
        ]
        taken = []
        for message, outcome in zip(own, await self._ledger.commit_all(commands), strict=True):
            if not isinstance(outcome, TenureError):
                taken.append(message)
            elif concerns_all(outcome):
                raise outcome
            else:
                await self._refuse(message, outcome)
        for message in await self._calls.run(self._mailbox.acknowledge_many, taken):
            self._log.info(f"submission {message.id} comes again: it was accepted, and will be known already")

    async def _refuse(self, message: Submission, error: TenureError) -> None:
        with self._failures.noted(FailedOn.REQUEST, message.id, "refusing a submission"):
            if error.retryable:
                await self._calls.run(message.nack, LATER_S)
                return
            self._log.warning(f"job {message.body.job_id} was submitted through the engine and is refused: {error}")
            await self._calls.run(message.dead_letter, str(error)[:1_000])


def why_not(submission: JobSubmission) -> TenureError | None:
    """Returns why nobody may submit this through the engine; None where the decision may look at it. A port has checked as much before the decision."""
    if submission.gate_addr or submission.gate_addrs or submission.gate_epoch:
        # A manager reports there with its own token.
        return ConfigurationError("gate_addr is set, and only gates set it")
    try:
        check(submission, field="submission")
        check_not_stored(submission)
    except TenureError as error:
        return error
    return None
