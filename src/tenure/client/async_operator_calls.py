"""The part of a client that looks after a datacenter: schedules, queues, nodes, dead letters; and many jobs at once, by filter.

Each method sends one operation of the API; `tests/client/test_one_api.py` compares the two, and the commands.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from tenure.client.job_messages import BulkDone
from tenure.codec import Codec
from tenure.control.messages.gates import AskGate, GateView
from tenure.control.messages.jobs import MAX_LISTED, Cancel, Done, JobList, JobRow, ListJobs, RetryJob
from tenure.control.messages.nodes import (
    AskOverview,
    DrainNode,
    HoldName,
    ListNodes,
    NodeList,
    Overview,
    ReleaseName,
    UndrainNode,
)
from tenure.control.messages.queues import (
    MAX_DEAD_LETTERS,
    ChangeQueue,
    DeadLetterList,
    DeadLetterRow,
    DeadLetterView,
    DiscardDeadLetter,
    DropSchedule,
    GetDeadLetter,
    LetterDone,
    ListDeadLetters,
    ListQueues,
    ListSchedules,
    PauseQueue,
    QueueList,
    ReplayDeadLetter,
    ResumeQueue,
    ScheduleList,
    SetSchedule,
    TriggerSchedule,
)
from tenure.control.messages.tokens import CreateToken, ListTokens, RevokeToken, Token, TokenDone, TokenList
from tenure.control.messages.wire import Request
from tenure.control.messages.workflows import ListThresholds, ListWorkflows, ThresholdList, WorkflowList
from tenure.errors import ConfigurationError, NodeRefusedError
from tenure.jobs.state_records import Schedule
from tenure.randomness import IdSource
from tenure.work.job_submission import with_codec

ReplyT = TypeVar("ReplyT")


class AsyncOperatorCalls(ABC):
    """A base of the client. `_expect` sends a request and returns the reply of that kind."""

    _ids: IdSource
    _codec: Codec | None

    @abstractmethod
    async def _expect(self, kind: type[ReplyT], request: Request, wait_s: float = 0.0) -> ReplyT: ...

    # Tokens

    async def create_token(self, token: Token, *, by: str = "") -> TokenDone:
        """Lets a token in on all nodes. `token` holds the SHA-256 of a secret that this program made and keeps."""
        return await self._expect(TokenDone, CreateToken(token=token, by=by))

    async def tokens(self) -> TokenList:
        """Returns the tokens and certificates that the nodes know, and what each may do."""
        return await self._expect(TokenList, ListTokens())

    async def revoke_token(self, token_id: str, *, by: str = "") -> TokenDone:
        """Lets a token or a certificate in nowhere any more."""
        return await self._expect(TokenDone, RevokeToken(id=token_id, by=by))

    # Schedules

    async def schedules(self) -> ScheduleList:
        """Returns every schedule, and what became of its instants."""
        return await self._expect(ScheduleList, ListSchedules())

    async def set_schedule(self, schedule: Schedule, *, datacenter: str = "", by: str = "") -> Done:
        """Makes a schedule, or replaces the one of its name. The same again changes nothing."""
        sealed = msgspec.structs.replace(schedule, job=with_codec(self._codec, schedule.job))
        return await self._expect(Done, SetSchedule(schedule=sealed, datacenter=datacenter, by=by))

    async def drop_schedule(self, name: str, *, by: str = "") -> Done:
        """Ends a schedule; what runs goes on."""
        return await self._expect(Done, DropSchedule(name=name, by=by))

    async def trigger_schedule(self, name: str, *, job_id: str = "", by: str = "") -> str:
        """Runs the job of a schedule now, and returns the id of the run. The same `job_id` again is the same run."""
        run = job_id or f"{name}/{self._ids()[:12]}"
        return (await self._expect(Done, TriggerSchedule(name=name, job_id=run, by=by))).job_id

    # Queues

    async def queues(self) -> QueueList:
        """Returns the queues that hold work or have limits."""
        return await self._expect(QueueList, ListQueues())

    async def pause_queue(self, queue: str, *, by: str = "") -> Done:
        """Starts nothing more from a queue; what runs goes on."""
        return await self._expect(Done, PauseQueue(queue=queue, by=by))

    async def resume_queue(self, queue: str, *, by: str = "") -> Done:
        """Lets a paused queue go on."""
        return await self._expect(Done, ResumeQueue(queue=queue, by=by))

    async def set_queue(
        self,
        queue: str,
        *,
        paused: Any = UNSET,
        max_running: Any = UNSET,
        rate: Any = UNSET,
        burst: Any = UNSET,
        job_timeout: Any = UNSET,
        park: Any = UNSET,
        keep_archive: Any = UNSET,
        preempt_after: Any = UNSET,
        concurrency_key: Any = UNSET,
        max_per_key: Any = UNSET,
        weights: Any = UNSET,
        by: str = "",
    ) -> Done:
        """Changes the limits of a queue. What is left out stays as it is; None lifts a limit."""
        change = ChangeQueue(
            queue=queue,
            paused=paused,
            max_running=max_running,
            rate=rate,
            burst=burst,
            job_timeout=job_timeout,
            park=park,
            keep_archive=keep_archive,
            preempt_after=preempt_after,
            concurrency_key=concurrency_key,
            max_per_key=max_per_key,
            weights=weights,
            by=by,
        )
        return await self._expect(Done, change)

    async def catalogue(self, name: str = "") -> WorkflowList:
        """Returns the workflows that workers serve, or the one of this name: versions, arguments, settings, workers."""
        return await self._expect(WorkflowList, ListWorkflows(name=name))

    async def thresholds(self, name: str = "") -> ThresholdList:
        """Returns the stall thresholds of workflows, or of the one of this name: set, learned, which of them holds, and why."""
        return await self._expect(ThresholdList, ListThresholds(name=name))

    # Nodes

    async def overview(self) -> Overview:
        """Returns how the datacenter is, and what is wrong."""
        return await self._expect(Overview, AskOverview())

    async def gate(self) -> GateView:
        """Returns how a gate is, and what it sees of the datacenters."""
        return await self._expect(GateView, AskGate())

    async def nodes(self, *, attempts: bool = False) -> NodeList:
        """Returns managers, workers and gates; with `attempts`, also what each worker runs."""
        return await self._expect(NodeList, ListNodes(attempts=attempts))

    async def drain(self, node: str, reason: str = "", *, within_s: float | None = None, by: str = "") -> Done:
        """Gives a worker no more work; with `manager/NAME`, lets that manager accept no new jobs.

        With `within_s`, what runs on the worker leaves within so many seconds, each attempt when the least work is lost.
        """
        return await self._expect(Done, DrainNode(node=node, reason=reason, within_s=within_s, by=by))

    async def undrain(self, node: str, *, by: str = "") -> Done:
        """Lets a drained node take work again."""
        return await self._expect(Done, UndrainNode(node=node, by=by))

    async def hold(
        self, name: str, reason: str = "", *, most_s: float = 21_600.0, rate: float = 5.0, by: str = ""
    ) -> Done:
        """Says that something that attempts wait for is down: their clocks stand still, and nothing is charged."""
        return await self._expect(Done, HoldName(name=name, reason=reason, most_s=most_s, rate=rate, by=by))

    async def release(self, name: str, reason: str = "", *, by: str = "") -> Done:
        """Says that it is back: clocks run again."""
        return await self._expect(Done, ReleaseName(name=name, reason=reason, by=by))

    # Dead letters

    async def dead_letters(self, mailbox: str = "", *, limit: int = 100, after: str = "") -> DeadLetterList:
        """Returns messages that were given up, oldest first: of one mailbox, as `default.p0`, or of all lanes."""
        return await self._expect(DeadLetterList, ListDeadLetters(mailbox=mailbox, limit=limit, after=after))

    async def dead_letter(self, mailbox: str, letter: str) -> DeadLetterView:
        """Returns one message that was given up, with its body."""
        return await self._expect(DeadLetterView, GetDeadLetter(mailbox=mailbox, id=letter))

    async def replay(self, mailbox: str, letter: str, *, by: str = "") -> LetterDone:
        """Puts a dead letter back into its mailbox. Refused when its job has ended, or a newer message has its key."""
        return await self._expect(LetterDone, ReplayDeadLetter(mailbox=mailbox, id=letter, by=by))

    async def discard(self, mailbox: str, letter: str, *, by: str = "") -> LetterDone:
        """Forgets a dead letter for good."""
        return await self._expect(LetterDone, DiscardDeadLetter(mailbox=mailbox, id=letter, by=by))

    # Many at once

    async def jobs_that(self, **filters: Any) -> list[JobRow]:
        """Returns all jobs that fit the filters of `jobs`, page by page. Raises `ConfigurationError` without any filter."""
        if not any(value not in (None, "", 0.0) for value in filters.values()):
            raise ConfigurationError("no filter is given", remedy="Name a state, queue, name, function, label or time")
        found: list[JobRow] = []
        after = ""
        while True:
            page = await self._expect(JobList, ListJobs(limit=MAX_LISTED, after=after, **filters))
            found += page.jobs
            after = page.next
            if not after:
                return found

    async def retry_all(
        self, *, dry_run: bool = False, by: str = "", whole: bool = False, timeout: float | None = None, **filters: Any
    ) -> list[BulkDone]:
        """Retries every ended job that fits the filters. Asked again, they are the same new jobs; completed ones only where `state` says so."""
        rows = [row for row in await self.jobs_that(**filters) if row.state.terminal]
        if not filters.get("state"):
            rows = [row for row in rows if row.state != "completed"]
        if dry_run:
            return [BulkDone(id=row.job_id, outcome="would be retried") for row in rows]
        done = []
        for row in rows:
            try:
                request = RetryJob(job_id=row.job_id, by=by, whole=whole, timeout_seconds=timeout)
                made = (await self._expect(Done, request)).job_id
                done.append(BulkDone(id=row.job_id, outcome="retried", new_job_id=made))
            except NodeRefusedError as error:
                done.append(BulkDone(id=row.job_id, outcome="refused", reason=error.fact))
        return done

    async def cancel_all(
        self, reason: str = "", *, dry_run: bool = False, by: str = "", **filters: Any
    ) -> list[BulkDone]:
        """Cancels every job that fits the filters and has not ended."""
        rows = [row for row in await self.jobs_that(**filters) if not row.state.terminal]
        if dry_run:
            return [BulkDone(id=row.job_id, outcome="would be cancelled") for row in rows]
        done = []
        for row in rows:
            answer = await self._expect(Done, Cancel(job_id=row.job_id, reason=reason, by=by))
            done.append(BulkDone(id=row.job_id, outcome="cancelled", reason=answer.reason))
        return done

    async def replay_all(
        self, mailbox: str = "", *, cause: str = "", dry_run: bool = False, by: str = ""
    ) -> list[BulkDone]:
        """Replays every dead letter of a mailbox, or of all lanes; with `cause`, those that died of it."""
        found = await self.dead_letters(mailbox, limit=MAX_DEAD_LETTERS)
        letters: list[DeadLetterRow] = [one for one in found.letters if cause in ("", one.cause)]
        if dry_run:
            return [BulkDone(id=one.id, outcome="would be replayed") for one in letters]
        done = []
        for one in letters:
            answer = await self.replay(one.mailbox, one.id, by=by)
            said = "replayed" if answer.outcome == "accepted" else str(answer.outcome)
            done.append(BulkDone(id=one.id, outcome=said, reason=answer.reason))
        return done
