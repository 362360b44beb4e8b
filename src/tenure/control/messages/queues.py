"""Requests of operators about queues, dead letters and schedules."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from tenure import bounds as b
from tenure.control.messages.wire import Missing, Placed, Reply
from tenure.engines.contracts import FailureCause
from tenure.jobs.decisions import Outcome
from tenure.jobs.state_records import Schedule

MAX_DEAD_LETTERS = 500


class PauseQueue(Placed, frozen=True, kw_only=True, tag="pause"):
    """Start nothing more from this queue; what runs goes on, and submissions wait. Leader only."""

    queue: b.QueueName
    by: b.Person = ""


class ResumeQueue(Placed, frozen=True, kw_only=True, tag="resume"):
    """Let a paused queue go on. Leader only."""

    queue: b.QueueName
    by: b.Person = ""


class ChangeQueue(Placed, frozen=True, kw_only=True, tag="set_queue"):
    """Change the limits of a queue. What is left out stays as it is; null lifts a limit. Leader only."""

    queue: b.QueueName
    paused: bool | UnsetType = UNSET
    max_running: b.MaxRunning | UnsetType | None = UNSET
    rate: b.Rate | UnsetType | None = UNSET
    burst: b.Burst | UnsetType = UNSET
    job_timeout: b.PositiveSeconds | UnsetType | None = UNSET
    """The deadline of jobs that are submitted without one from now on."""
    park: bool | UnsetType = UNSET
    """True to accept work that no worker has registered: it waits for one that serves it."""
    keep_archive: b.PositiveSeconds | UnsetType | None = UNSET
    """The seconds for which a job of this queue can be read after it left the lists; null for the manager's setting."""
    preempt_after: b.PositiveSeconds | UnsetType | None = UNSET
    """Work that waited for a slot for so many seconds may take that of running work with a lower priority, if it has saved; null for never."""
    concurrency_key: b.KeyExpression | UnsetType = UNSET
    """Where the key of its work stands, as `args.tenant` or `labels.customer`: keys take turns. Empty: none."""
    max_per_key: b.MaxRunning | UnsetType | None = UNSET
    """The most attempts of one key at once."""
    weights: b.Weights | UnsetType = UNSET
    """Maps a key to the turns that it has where others have one. It replaces the weights from before."""
    by: b.Person = ""


class ListQueues(Placed, frozen=True, kw_only=True, tag="queues"):
    """Every queue that holds work or has limits."""


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one key of a queue."""

    key: str
    under_way: int = 0
    """Attempts that are in the engine or running."""
    held: int = 0
    """Attempts that wait for their turn."""


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    paused: bool = False
    max_running: int | None = None
    rate: float | None = None
    burst: int = 1
    job_timeout: float | None = None
    """The deadline of its jobs whose submission has none."""
    park: bool = False
    """True where work that no worker has registered is accepted, and waits for one that serves it."""
    keep_archive: float | None = None
    """The seconds for which its archived jobs can be read; None for the manager's setting."""
    preempt_after: float | None = None
    """The seconds after which its waiting work may take the slot of running work with a lower priority; None for never."""
    concurrency_key: str = ""
    """Where the key of its work stands; empty where it has none."""
    max_per_key: int | None = None
    weights: dict[str, int] = msgspec.field(default_factory=dict)
    keys: tuple[KeyView, ...] = ()
    """The keys with most work, at most 20."""
    parked: int = 0
    """Workflows that wait for a worker that serves them."""
    held: int = 0
    """Attempts that could go and were not sent yet: the queue is paused, full, or out of its rate."""
    queued: int = 0
    """Attempts that wait for a worker."""
    running: int = 0
    oldest_s: float = 0.0
    """The seconds that the oldest workflow has waited for a worker."""
    priorities: tuple[int, ...] = ()
    datacenter: str = ""
    """Where it is; empty where a manager answers."""


class QueueList(Reply, frozen=True, kw_only=True, tag="queue_list"):
    queues: tuple[QueueView, ...]
    now: float
    missing: tuple[Missing, ...] = ()
    """Where a gate answers: datacenters that did not."""


class ListDeadLetters(Placed, frozen=True, kw_only=True, tag="dead_letters"):
    """Messages that were given up, oldest first."""

    mailbox: b.MailboxOrNone = ""
    """A lane as `default.p0`, or a mailbox of your own; left out, all lanes that this manager knows."""
    limit: b.ListedLetters = 100
    """The most dead letters of each mailbox."""
    after: b.MessageIdOrNone = ""
    """The id of the last one of the previous page; needs a mailbox."""


class DeadLetterRow(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    mailbox: str
    cause: FailureCause
    reason: str
    died_at: float
    enqueued_at: float
    deliveries: int
    key: str = ""
    generation: int = 0
    datacenter: str = ""
    """Where it is; empty where a manager answers."""


class DeadLetterList(Reply, frozen=True, kw_only=True, tag="dead_letter_list"):
    letters: tuple[DeadLetterRow, ...]
    count: int
    """The number of dead letters in these mailboxes, also where fewer were asked for."""
    missing: tuple[Missing, ...] = ()
    """Where a gate answers: datacenters that did not."""


class GetDeadLetter(Placed, frozen=True, kw_only=True, tag="dead_letter"):
    """One message that was given up, with its body."""

    mailbox: b.MailboxName
    id: b.MessageId


class DeadLetterView(Reply, frozen=True, kw_only=True, tag="dead_letter_view"):
    letter: DeadLetterRow
    body: Any = None
    """As JSON, where it is JSON."""
    text: str = ""
    """As text, where it is not."""


class ReplayDeadLetter(Placed, frozen=True, kw_only=True, tag="replay"):
    """Put a dead letter back into its mailbox. Refused when a newer message has its key, or its job has ended."""

    mailbox: b.MailboxName
    id: b.MessageId
    by: b.Person = ""


class DiscardDeadLetter(Placed, frozen=True, kw_only=True, tag="discard"):
    """Forget a dead letter for good."""

    mailbox: b.MailboxName
    id: b.MessageId
    by: b.Person = ""


class LetterDone(Reply, frozen=True, kw_only=True, tag="letter_done"):
    """`nothing`: there is no such dead letter any more, so it may have been done before."""

    mailbox: str
    id: str
    outcome: Outcome
    reason: str = ""


class SetSchedule(Placed, frozen=True, kw_only=True, tag="set_schedule"):
    """Have a job run again and again, by cron or every so often. A name that there is gets another schedule. The same again changes nothing. Leader only."""

    schedule: Schedule
    by: b.Person = ""


class DropSchedule(Placed, frozen=True, kw_only=True, tag="drop_schedule"):
    """End a schedule: nothing more of it fires, and what runs goes on. Leader only."""

    name: b.AnyName
    by: b.Person = ""


class TriggerSchedule(Placed, frozen=True, kw_only=True, tag="trigger_schedule"):
    """Run the job of a schedule now, beside the runs of its instants. The same `job_id` again is the same run. Leader only."""

    name: b.AnyName
    job_id: b.JobId
    by: b.Person = ""


class ListSchedules(Placed, frozen=True, kw_only=True, tag="schedules"):
    """Every schedule, and what became of its instants."""


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    schedule: Schedule
    next_at: float | None
    """Unix time; None when it never fires again, or is paused."""
    last_instant: float
    last_job: str
    fired: int
    skipped: int
    last_skipped: str
    """Why the last instant that was skipped did not run."""
    problem: str = ""
    """Why it cannot fire here, if it cannot."""
    datacenter: str = ""
    """Where it fires; empty where a manager answers."""


class ScheduleList(Reply, frozen=True, kw_only=True, tag="schedule_list"):
    schedules: tuple[ScheduleView, ...]
    now: float
    missing: tuple[Missing, ...] = ()
    """Where a gate answers: datacenters that did not."""
