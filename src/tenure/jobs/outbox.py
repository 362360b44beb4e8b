"""Derives the work that a leader has to do outside from its state, so that a new leader does what the last one left undone.

Everything here may be done twice. A message is sent under its key and generation, so the engine refuses a second
one; a revoked key stays revoked; a directive is the whole desired state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from tenure.attempt_data import LIVE_TTL_S, HandedResult
from tenure.jobs import budget
from tenure.jobs.attempts import charged, held_by_another
from tenure.jobs.book import JobBook
from tenure.jobs.catalogue import is_served, served_key
from tenure.jobs.door import candidates
from tenure.jobs.endings import has_live_parent, left_a_message
from tenure.jobs.fair_lanes import key_room, key_weight, window
from tenure.jobs.learned_gaps import Learned, learned_for
from tenure.jobs.mailbox_names import mailbox_name, work_mailbox
from tenure.jobs.model import JobInfo, WorkflowRecord
from tenure.jobs.queues import opens_at, room
from tenure.jobs.result_flow import handed_result
from tenure.jobs.states import WorkflowState
from tenure.jobs.steering import stop_words
from tenure.jobs.work_indexes import Lane, WorkflowKey, lane_of


class Dispatch(NamedTuple):
    """One message to send, under the key `job/workflow`."""

    job_id: str
    workflow: str
    attempt: int
    function: str
    version: str
    arguments: dict[str, Any]
    queue: str
    priority: int
    stall: float | None
    excluded: tuple[str, ...]
    tries: int
    """The number of times that its message may be started: the rest of `max_attempts`, this attempt included."""
    generation: int
    by_workflow: bool
    results: dict[str, HandedResult]
    """The outcomes of the workflows that it comes after."""
    learned: Learned | None = None
    """The learned threshold, for work that asks for one."""
    arguments_at: str = ""
    """The key of its large arguments in the store."""

    @property
    def key(self) -> str:
        return message_key(self.job_id, self.workflow)

    @property
    def mailbox(self) -> str:
        if self.by_workflow:
            return work_mailbox(self.queue, self.priority, self.function, self.version)
        return self.lane

    @property
    def lane(self) -> str:
        return mailbox_name(self.queue, self.priority)


class AttemptStanding(NamedTuple):
    """States whether an attempt that a worker reports may go on, and if not, why."""

    wanted: bool
    reason: str = ""


def message_key(job_id: str, workflow: str) -> str:
    """Returns the key of a workflow's message. A workflow's name has no slash, so keys of different jobs never meet."""
    return f"{job_id}/{workflow}"


def to_dispatch(
    book: JobBook,
    now: float,
    *,
    limit: int = 1_000,
    slots: Callable[[str], int] = lambda queue: 0,
    skip: Container[str] = (),
    failed: dict[str, Exception] | None = None,
) -> list[Dispatch]:
    """Returns the attempts that are decided and not recorded as sent, highest priority first, then oldest: at most `limit`.

    A paused queue gives none, the others no more than their limit and their rate allow. `slots` tells how many slots a queue has: of a queue whose work
    has keys, no more than a short window goes to the engine, because what is there is out of turn. Jobs in `skip` are left out. Where `failed` is given, a
    job whose record raises goes into it, so that it does not hold up the rest.
    """
    book.wake(now, skip=skip, failed=failed)
    found: list[Dispatch] = []
    for lane in sorted(book.ready, key=lambda lane: -lane[1]):
        queue = lane[0]
        taken = sum(order.queue == queue for order in found)
        most = max(
            0, min(limit - len(found), room(book.state.queues.get(queue), book.in_queue.get(queue, 0), now) - taken)
        )
        for key in _next_of(book, lane, most, slots, found, skip):
            try:
                found.append(order_for(book, key, now))
            except Exception as error:
                if failed is None:
                    raise
                failed[key[0]] = error
    return found


def _next_of(
    book: JobBook, lane: Lane, most: int, slots: Callable[[str], int], found: list[Dispatch], skip: Container[str]
) -> Iterable[WorkflowKey]:
    """Returns the work of a lane that goes next: the oldest, or where work has keys, whose turn it is. `found` are those that go before it."""
    queue, fair = lane[0], book.turns.lanes.get(lane)
    before = [order for order in found if order.queue == queue]
    if fair is None:
        return list(islice((key for key in book.ready[lane] if key[0] not in skip), most))
    most = max(0, min(most, window(slots(queue)) - book.in_queue.get(queue, 0) - len(before)))

    def room_of(key: str, work: WorkflowKey) -> float:
        return key_room(book, queue, key, book.jobs[work[0]].workflows[work[1]])

    return fair.pick(most, room_of, partial(key_weight, book, queue), skip, _keys_of(book, before))


def _keys_of(book: JobBook, orders: list[Dispatch]) -> Counter[str]:
    """Counts orders of one queue by key. The priorities of a queue share the limits of its keys."""
    lanes = [(book.turns.lanes.get((order.queue, order.priority)), order) for order in orders]
    return Counter(lane.key_of((order.job_id, order.workflow)) for lane, order in lanes if lane is not None)


def order_for(book: JobBook, key: WorkflowKey, now: float) -> Dispatch:
    job_id, name = key
    info = book.jobs[job_id]
    workflow = info.workflows[name]
    spec, (queue, priority) = workflow.spec, lane_of(info)
    return Dispatch(
        job_id,
        name,
        workflow.attempt,
        spec.called,
        workflow.version,
        spec.arguments,
        queue,
        priority,
        spec.stall,
        tuple(workflow.excluded),
        max(1, spec.policy.max_attempts - charged(workflow)),
        workflow.generation,
        workflow.by_workflow,
        {one: handed_result(info, one) for one in spec.after},
        _learned(book, workflow, now),
        spec.arguments_at,
    )


def _learned(book: JobBook, workflow: WorkflowRecord, now: float) -> Learned | None:
    """Returns the learned threshold for the next attempt; None for work whose author did not ask for one, or whose submission sets its own.

    After an attempt of this workflow was ended for its silence, the set one holds for the rest of the job: it shows whether that was wrong, and no
    job fails for good by what was learned.
    """
    spec = workflow.spec
    # Nearly no work asks for it, and this is asked for every message: so look before `candidates` sorts anything.
    if spec.stall is not None or not any(
        one.served.learn for one in book.state.catalogue.get(spec.called, {}).values()
    ):
        return None
    found = candidates(book, spec, now)
    if not found or not all(one.learn for one in found):
        return None
    if workflow.stalled:
        return Learned(None, "an earlier attempt of it was ended for its silence")
    return learned_for(book.state.gaps, spec.called, [one.version for one in found])


def mailbox_of(info: JobInfo, workflow: WorkflowRecord) -> str:
    """Returns the mailbox in which the messages of a dispatched workflow are."""
    if not workflow.by_workflow:
        return mailbox_name(*lane_of(info))
    return work_mailbox(*served_key(lane_of(info), workflow))


def to_withdraw(book: JobBook, *, limit: int = 200, shared_only: bool = False) -> list[WorkflowKey]:
    """Returns attempts in the engine that no worker serves: at most `limit`. They would count against the limits of their queue.

    Where they are in the mailbox that all workflows share (`shared_only`: only those), everything behind them would wait for them, too.
    No record is looked at: after each election this is asked of all that is in the engine.
    """
    unserved = {
        needs
        for needs in book.queued.counts
        if not (needs.by_workflow and shared_only) and not is_served(book, needs.served, by_workflow=needs.by_workflow)
    }
    lanes = {needs.lane for needs in unserved}
    found = (
        key
        for lane, waiting in book.queued.items()
        if lane in lanes
        for key, needs in waiting.items()
        if needs in unserved
    )
    return list(islice(found, limit))


def to_take_back(book: JobBook, *, limit: int = 200) -> list[WorkflowKey]:
    """Returns attempts of paused jobs that are in the engine and not started: at most `limit`. One that a worker has claimed is asked to end when it starts."""
    found = (
        (job_id, name)
        for job_id in book.paused
        for name, workflow in book.jobs[job_id].workflows.items()
        if workflow.state is WorkflowState.QUEUED
    )
    return list(islice(found, limit))


def next_dispatch_at(book: JobBook, now: float) -> float:
    """Returns when the next attempt that rests, or that its queue's rate holds, may go; infinity when there is none."""
    held = {queue for (queue, _), waiting in book.ready.items() if waiting}
    return min([book.resting.next_due(), *(opens_at(book.state.queues.get(queue), now) for queue in held)])


def live_messages(book: JobBook, job_id: str) -> list[tuple[str, str]]:
    """Returns the (mailbox, key) of each message that an ended job may have left in the engine."""
    info = book.jobs[job_id]
    return [
        (mailbox_of(info, workflow), message_key(job_id, name))
        for name, workflow in info.workflows.items()
        if left_a_message(workflow)
    ]


def to_expire(book: JobBook, now: float) -> list[str]:
    """Returns ended jobs whose results are past their time, at most 100. `ExpireResults` takes them off this list."""
    due = book.expiring.pop_due(now, limit=100)
    for job_id in due:
        book.expiring.set(job_id, now)
    return due


def to_archive(book: JobBook, now: float, *, limit: int = 100, skip: Container[str] = ()) -> list[str]:
    """Returns ended jobs that are old enough to leave memory. The decision on `ArchiveJob` finds whether anything else holds them."""
    due: list[str] = []
    keep_s = budget.keep_finished(book)
    for job_id in islice(book.ended, 10 * limit):
        info = book.jobs[job_id]
        if len(due) >= limit or info.ended_at + keep_s > now:
            break
        # A job whose end its gate has not acknowledged, or that is not cleaned up, must not hold up those behind it.
        waits = not info.gate_acked or job_id in book.failed_undos
        heard = info.cleaned and (not waits or info.ended_at + book.settings.id_memory <= now)
        if heard and job_id not in skip:
            due.append(job_id)
    return due


def keep_archive(book: JobBook, info: JobInfo) -> float:
    """Returns the seconds for which the record of a job can be read once it is archived: its queue's, else the datacenter's.

    A parent that has not ended may ask for its child months later (RULINGS 19).
    """
    if has_live_parent(book, info):
        return LIVE_TTL_S
    queue = book.state.queues.get(lane_of(info)[0])
    return queue.keep_archive if queue is not None and queue.keep_archive else book.settings.keep_archive


def standing(
    book: JobBook, job_id: str, workflow: str, attempt: int, delivery: int = 0, worker: str = ""
) -> AttemptStanding:
    """Returns the leader's answer to a worker that reports this attempt as running. A directive lists the unwanted ones."""
    info = book.jobs.get(job_id)
    if info is None:
        archived = book.state.archive.get(job_id)
        return AttemptStanding(False, f"its job ended: {archived.state}" if archived else "its job is not known")
    known = info.workflows.get(workflow)
    if known is None:
        return AttemptStanding(False, f"its job has no workflow {workflow!r}")
    if info.state.terminal:
        return AttemptStanding(False, f"its job ended: {info.state}: {info.reason}")
    if attempt != known.attempt:
        return AttemptStanding(False, f"attempt {attempt} was replaced by attempt {known.attempt}")
    if delivery and delivery < known.delivery:
        return AttemptStanding(False, f"delivery {delivery} was replaced by delivery {known.delivery}")
    if known.state.terminal:
        return AttemptStanding(False, f"the workflow ended: {known.state}")
    if held_by_another(known, delivery, worker):
        return AttemptStanding(False, "another worker holds this delivery")
    if words := stop_words(info, known, worker):
        return AttemptStanding(False, words)
    return AttemptStanding(True)
