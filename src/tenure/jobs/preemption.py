"""Decides which running attempt gives its slot to urgent work that waits for one (decision 0570). Pure: it is given the fleet's facts, and told the time.

Nothing is preempted unless an operator says so for a queue (`preempt_after`). Work of such a queue that has waited for so long, while no worker
that could do it has a free slot, gets the slot of running work with a lower priority. The lowest priority goes first, then the least work
since the last durable mark. An attempt that has saved nothing is never chosen: it would begin from the start, and could be made to for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from tenure.jobs.attempt_rest import is_new_mark
from tenure.jobs.states import AttemptStop, WorkflowState

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook
    from tenure.jobs.work_indexes import WorkflowKey

LOOKED_AT = 100
"""The waiting work of one lane that is looked at in one round, oldest first: the rest waits for the next round."""


class Waiting(NamedTuple):
    """Urgent work that has waited for a slot for longer than its queue allows."""

    key: WorkflowKey
    priority: int
    waited_s: float
    able: Collection[str]
    """The workers that could do it now, had they a free slot."""


class Running(NamedTuple):
    """An attempt that might give up its slot."""

    key: WorkflowKey
    worker: str
    priority: int
    loss_s: float
    """The work since its last durable mark."""


class Preemption(NamedTuple):
    """One running attempt gives its slot to one that waits."""

    victim: Running
    waiting: Waiting

    @property
    def reason(self) -> str:
        job, workflow = self.waiting.key
        return (
            f"{workflow!r} of job {job!r} with priority {self.waiting.priority} has waited for a slot for "
            f"{self.waiting.waited_s:.0f} s, and this attempt has priority {self.victim.priority}"
        )


def overdue(book: JobBook, now: float, able: Callable[[WorkflowKey], Collection[str]]) -> Iterator[Waiting]:
    """Yields the work that has waited too long in a queue that preempts: the highest priority first, then the oldest.

    Only work that is in the engine counts. What a limit, a rate or a turn holds back waits for that, and not for a slot.
    """
    promised = {stop.for_work for stop in _stops(book)}
    for lane in sorted(book.queued, key=lambda lane: -lane[1]):
        record = book.state.queues.get(lane[0])
        if record is None or record.preempt_after is None or record.paused:
            continue
        for key in list(islice(book.queued[lane], LOOKED_AT)):
            waited_s = now - book.jobs[key[0]].workflows[key[1]].dispatched_at
            if waited_s >= record.preempt_after and "/".join(key) not in promised:
                yield Waiting(key, lane[1], waited_s, able(key))


def _stops(book: JobBook) -> Iterator[AttemptStop]:
    for held in book.on_worker.values():
        for job_id, name in held:
            if (stop := book.jobs[job_id].workflows[name].stop) is not None:
                yield stop


def choose(waiting: Iterable[Waiting], running: Iterable[Running], free: Callable[[str], int]) -> list[Preemption]:
    """Returns who gives way to whom. A free slot is left to whoever waits first, and each attempt gives way once."""
    left = sorted(running, key=lambda one: (one.priority, one.loss_s))
    spare: dict[str, int] = {}
    found: list[Preemption] = []
    for urgent in waiting:
        for worker in urgent.able:
            spare.setdefault(worker, free(worker))
        if idle := next((worker for worker in urgent.able if spare[worker] > 0), None):
            spare[idle] -= 1
            continue
        victim = next((one for one in left if one.worker in urgent.able and one.priority < urgent.priority), None)
        if victim is not None:
            left.remove(victim)
            found.append(Preemption(victim, urgent))
    return found


def may_give_way(book: JobBook, key: WorkflowKey, attempt: int, worker: str, mark: int) -> bool:
    """Returns True for an attempt that runs there, was not asked to end already, and has saved something new since it last made way.

    So work that gives way again and again still advances between two times.
    """
    info = book.jobs.get(key[0])
    known = info.workflows.get(key[1]) if info is not None else None
    if known is None or known.state is not WorkflowState.RUNNING or known.stop is not None:
        return False
    return known.attempt == attempt and known.worker == worker and is_new_mark(mark, known.mark)
