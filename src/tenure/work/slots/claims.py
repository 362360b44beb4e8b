"""Which mailboxes a worker claims from, and which claimed work it gives back to other workers.

A worker covers the mailboxes of the workflows that it serves, in each of its queues (and priorities, in a datacenter), and beside them the one of
each queue (and priority) that all workflows share: there is work of earlier releases, and what senders without managers put there. Order is strict for seven jobs of eight; every eighth is looked for
from the other end, so that a busy high priority leaves the low ones an eighth of the slots (decision 0146).

A worker declines work that excludes it, because an earlier attempt failed there, for a moment, and work whose workflow or version it does not
have: the latter only comes from mailboxes of the old form, and a leader takes it back from there when nobody serves it (decision 0521). So two
versions of a workflow live side by side during a deploy. Work must never be stranded: a worker without peers declines nothing that it has, and no
worker declines the same attempt for longer than its patience.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from tenure.backoff import delay_after
from tenure.engines.contracts import Consumer, Engine
from tenure.jobs.mailbox_names import mailbox_for as mailbox_for
from tenure.jobs.mailbox_names import work_mailbox
from tenure.served_workflow import ServedWorkflow
from tenure.work.delivery import WorkHead, WorkItem, WorkMessage, WorkResult

if TYPE_CHECKING:
    from tenure.engines.aio import Calls
    from tenure.work.registry import Registry

FAIR_EVERY = 8
_LANE = re.compile(r"(.+)\.p(-?[0-9]+)")
"""The mailbox of one queue and priority: `mailbox_name` in `jobs/outbox.py`."""


class ServedMailboxes:
    """The mailboxes of one worker, by rank. Those of which the first item was declined are left alone for a while."""

    def __init__(self, lanes: Sequence[str], *, managed: bool) -> None:
        """`lanes` are mailboxes of the old form, highest priority first: `queue.pN` where a leader dispatches, else any names."""
        self._lanes, self._managed = tuple(lanes), managed
        self._served: frozenset[tuple[str, str]] = frozenset()
        self._names: frozenset[str] = frozenset()
        self._ranks: list[list[str]] = []
        self._lane_of: dict[str, str] = {}
        self._paused: dict[str, float] = {}
        self._build()

    def serve(self, workflows: Iterable[tuple[str, str]]) -> bool:
        """Sets the workflows, each as name and version. Returns True when they are others than before."""
        served = frozenset((name, version) for name, version in workflows)
        if served == self._served:
            return False
        self._served, self._names = served, frozenset(name for name, _ in served)
        self._build()
        return True

    def _build(self) -> None:
        ranks: dict[str, list[str]] = {}
        self._lane_of = {}
        kinds = sorted({*self._served, *((name, "") for name in self._names)})
        for lane in self._lanes:
            dispatched = _LANE.fullmatch(lane) if self._managed else None
            rank = ranks.setdefault(dispatched[2] if dispatched else lane, [])
            if dispatched:
                rank += [work_mailbox(dispatched[1], int(dispatched[2]), name, version) for name, version in kinds]
            elif not self._managed:
                rank += [mailbox_for(lane, name, version) for name, version in kinds]
            rank.append(lane)
            self._lane_of.update((mailbox, lane) for mailbox in rank if mailbox not in self._lane_of)
        self._ranks = list(ranks.values())

    def knows(self, workflow: str, version: str | None) -> bool:
        return workflow in self._names if version is None else (workflow, version) in self._served

    def lane_of(self, mailbox: str) -> str:
        return self._lane_of.get(mailbox, mailbox)

    @property
    def several_ranks(self) -> bool:
        return len(self._ranks) > 1

    @property
    def ranks(self) -> list[list[str]]:
        """Returns the mailboxes to claim from now, highest priority first."""
        found = [[mailbox for mailbox in rank if mailbox not in self._paused] for rank in self._ranks]
        return [rank for rank in found if rank]

    def pause(self, mailbox: str, until: float) -> None:
        """Leaves a mailbox alone: its first item was declined, and would be claimed again at once."""
        # Of several that were declined together, the one whose patience ends first must not wait for the others.
        self._paused[mailbox] = min(until, self._paused.get(mailbox, math.inf))

    def resume(self, now: float) -> bool:
        """Ends the pauses that are over. Returns True when there were any."""
        over = [mailbox for mailbox, until in self._paused.items() if until <= now]
        for mailbox in over:
            del self._paused[mailbox]
        return bool(over)

    @property
    def resumes_at(self) -> float:
        """Returns when the next pause ends; infinity when there is none."""
        return min(self._paused.values(), default=math.inf)


class RankedClaims:
    """Claims one item at a time, for slots that run beside their engine. Several tasks may claim at once."""

    def __init__(self, engine: Engine, lanes: Sequence[str], registry: Registry) -> None:
        self._mailboxes = ServedMailboxes(lanes, managed=True)
        self._consumer: Consumer[WorkItem, WorkResult] = engine.consumer(WorkItem, WorkResult)
        self._claims = 0
        self._registry, self._served = registry, registry.served
        self._mailboxes.serve(kind for one in self._served for kind in one.does)
        self._consumer.cover(self._mailboxes.ranks)

    def cover(self) -> tuple[ServedWorkflow, ...]:
        """Covers what the registry has now, and returns it. So a workflow is covered before it is registered, and nothing waits unseen."""
        if self._registry.served is not self._served:
            self._served = self._registry.served
            if self._mailboxes.serve(kind for one in self._served for kind in one.does):
                self._consumer.cover(self._mailboxes.ranks)
        return self._served

    def lane_of(self, mailbox: str) -> str:
        return self._mailboxes.lane_of(mailbox)

    async def claim(self, calls: Calls, lease_s: float, wait_s: float) -> WorkMessage | None:
        """Returns a provisional claim, or None after the wait. Every eighth is looked for from the lowest priority first (decision 0146)."""
        self._claims += 1
        fair = self._mailboxes.several_ranks and self._claims % FAIR_EVERY == 0
        for is_fair, seconds in ((True, 0.0), (False, wait_s)) if fair else ((False, wait_s),):
            exchanged = await calls.run(
                self._consumer.exchange,
                max_messages=1,
                visibility_timeout=lease_s,
                wait_time_seconds=seconds,
                provisional=True,
                fair=is_fair,
            )
            if exchanged.messages:
                return exchanged.messages[0]
        return None


PATIENCE_S = 2.0
"""The patience for work that excludes this worker: that is a wish, and the work shall not wait long for another one."""
UNKNOWN_PATIENCE_S = 300.0
"""The patience for work that this worker does not have. It is long, because taking such work here means to fail it for good."""
STRANGER_PATIENCE_S = 10.0
"""The patience for such work while the number of peers is unknown, as it is for a worker that has just started."""
PAUSE_S = 0.25
MOST_PAUSE_S = 2.0
_EVEN_S = 1e-6  # sums of floats are that exact: a pause until the patience ends must not end just before it
_REMEMBERED = 1_000
LONGEST_NAME = 1_000
"""No worker can have a workflow with a longer name. Such work is taken and failed here: declining it would only hold up the work behind it."""


class ClaimFilter:
    """Remembers which attempts one worker has declined, and since when."""

    def __init__(
        self,
        worker: str,
        *,
        knows: Callable[[str, str | None], bool] = lambda workflow, version: True,
        patience_s: float = PATIENCE_S,
        unknown_patience_s: float = UNKNOWN_PATIENCE_S,
    ) -> None:
        self._worker, self._knows = worker, knows
        self._patience_s, self._unknown_patience_s = patience_s, unknown_patience_s
        self._since: dict[tuple[str, str, int], float] = {}
        self._declined = 0
        self.pause_s = PAUSE_S
        """A mailbox is left alone for about this long after a decline: otherwise the same message would be claimed again at once."""
        self._left_s = math.inf
        """The patience that is left for what was declined last."""

    def declines(self, item: WorkItem | WorkHead, peers: int | None, now: float, message: str = "") -> bool:
        """Returns True for work that another worker should have; its mailbox is left alone for `next_pause_s` then. `peers` is None while their number is unknown.

        `message` names work that belongs to no job.
        """
        if len(item.workflow) > LONGEST_NAME:
            return False
        known = self._knows(item.workflow, item.version)
        # A leader takes work back that nobody serves, and gives it to the worker that comes for it: being alone is no reason to fail it.
        alone = peers is not None and peers < 1 and (known or not item.managed)
        if alone or (known and (self._worker not in item.excluded or peers is None)):
            self._declined, self.pause_s = 0, PAUSE_S
            return False
        patience_s = self._patience_s
        if not known:
            patience_s = self._unknown_patience_s if peers or item.managed else STRANGER_PATIENCE_S
        since = self._since.setdefault((item.job_id or message, item.workflow_id, item.attempt), now)
        self._left_s = since + patience_s - now
        if self._left_s <= _EVEN_S:
            return False
        if len(self._since) > _REMEMBERED:
            del self._since[next(iter(self._since))]
        self._declined += 1
        self.pause_s = delay_after(self._declined, first_s=2 * PAUSE_S, most_s=MOST_PAUSE_S)
        return True

    def next_pause_s(self, chance: float) -> float:
        """Returns how long to leave a mailbox alone after a decline: `pause_s`, spread by `chance` (0 to 1), and never beyond the patience for the work that was declined."""
        return min(self.pause_s * (0.5 + chance), self._left_s)
