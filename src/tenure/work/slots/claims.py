"""Claims work for a slot: waits on all its mailboxes at once, and decides which claimed work it gives back to other workers.

Priorities are one mailbox each, so order is strict for seven claims of eight; every eighth looks from the other end, so that a busy high
priority leaves the low ones an eighth of the slots (decision 0146).

A worker declines work that excludes it, because an earlier attempt failed there, and work whose workflow or version it does not have.
So two versions of a workflow live side by side during a deploy. Work must never be stranded: a worker without peers declines nothing,
and no worker declines the same attempt for longer than its patience.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import NamedTuple

from tenure.backoff import delay_after
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine, Mailbox
from tenure.errors import TenureError
from tenure.work.delivery import WorkMessage
from tenure.work.envelope import WorkItem, WorkResult

WorkMailbox = Mailbox[WorkItem, WorkResult]
FAIR_EVERY = 8


class ClaimedMessage(NamedTuple):
    """A message that this slot has claimed, and the mailbox that it came from."""

    queue: str
    message: WorkMessage


class PriorityMailboxes:
    """The mailboxes of one slot, highest priority first. Call `claim` from one thread; `wake` from any."""

    def __init__(self, mailboxes: Sequence[tuple[str, WorkMailbox]]) -> None:
        self._mailboxes = list(mailboxes)
        self._turn = 0
        # A long poll waits on one mailbox; several are several threads, made when they are needed.
        self._pool = ThreadPoolExecutor(max(1, len(self._mailboxes)), thread_name_prefix="tenure-lane")

    @classmethod
    def of(cls, engine: Engine, lanes: Sequence[str]) -> PriorityMailboxes:
        return cls([(lane, engine.mailbox(lane, WorkItem, WorkResult)) for lane in lanes])

    def wake(self) -> None:
        """Ends the wait that is under way, or the next one."""
        for _, mailbox in self._mailboxes:
            mailbox.wake()

    def claim(self, lease_s: float, wait_s: float) -> ClaimedMessage | None:
        """Returns one provisional claim, or None after the wait."""
        if len(self._mailboxes) == 1:
            [(queue, mailbox)] = self._mailboxes
            found = mailbox.receive(1, lease_s, wait_s, provisional=True)
            return ClaimedMessage(queue, found[0]) if found else None
        for queue, mailbox in self._order():
            if found := mailbox.receive(1, lease_s, 0, provisional=True):
                return ClaimedMessage(queue, found[0])
        return self._wait(lease_s, wait_s)

    def _order(self) -> list[tuple[str, WorkMailbox]]:
        self._turn += 1
        return self._mailboxes if self._turn % FAIR_EVERY else self._mailboxes[::-1]

    async def claim_async(self, calls: Calls, lease_s: float, wait_s: float) -> ClaimedMessage | None:
        """Returns one provisional claim, or None after the wait, as `claim` does. Several tasks may call it at once."""
        if len(self._mailboxes) == 1:
            [(queue, mailbox)] = self._mailboxes
            found = await calls.run(mailbox.receive, 1, lease_s, wait_s, provisional=True)
            return ClaimedMessage(queue, found[0]) if found else None
        for queue, mailbox in self._order():
            if found := await calls.run(mailbox.receive, 1, lease_s, 0, provisional=True):
                return ClaimedMessage(queue, found[0])
        polls = {
            asyncio.ensure_future(calls.run(mailbox.receive, 1, lease_s, wait_s, provisional=True)): queue
            for queue, mailbox in self._mailboxes
        }
        keep = False
        try:
            await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
            keep = True
        finally:
            for poll in polls:
                poll.cancel()  # `calls` gives back what a cancelled receive claims
            ended = [(poll, queue) for poll, queue in polls.items() if poll.done() and not poll.cancelled()]
            claims = [ClaimedMessage(queue, found[0]) for poll, queue in ended if (found := _claimed(poll))]
            # Two may have had work at one moment: the first in order wins. When this call was cancelled, none does.
            for claim in claims[keep:]:
                await calls.run(claim.message.release)
        if not claims:
            for poll, _ in ended:
                poll.result()  # raises what the engine said
        return claims[0] if claims else None

    def _wait(self, lease_s: float, wait_s: float) -> ClaimedMessage | None:
        polls = {
            self._pool.submit(mailbox.receive, 1, lease_s, wait_s, provisional=True): queue
            for queue, mailbox in self._mailboxes
        }
        wait(polls, return_when=FIRST_COMPLETED)
        # One poll returned work, failed or was woken. In each case the others need not wait any longer.
        for poll, (_, mailbox) in zip(polls, self._mailboxes, strict=True):
            if not poll.done():
                mailbox.wake()
        wait(polls)
        claims = [ClaimedMessage(queue, found[0]) for poll, queue in polls.items() if (found := _claimed(poll))]
        for claim in claims[1:]:
            claim.message.release()  # two had work at one moment: the first in order wins
        if not claims:
            for poll in polls:
                poll.result()  # raises what the engine said
        return claims[0] if claims else None

    def close(self) -> None:
        self._pool.shutdown(wait=False)


def _claimed(poll: Future[list[WorkMessage]] | asyncio.Future[list[WorkMessage]]) -> list[WorkMessage]:
    if isinstance(error := poll.exception(), TenureError):
        return []
    if error is not None:
        raise error
    return poll.result()


PATIENCE_S = 30.0
UNKNOWN_PATIENCE_S = 300.0
"""The patience for work that this worker does not have. It is long, because taking such work here means to fail it for good."""
STRANGER_PATIENCE_S = 10.0
"""The patience for such work while the number of peers is unknown, as it is for a worker that has just started."""
PAUSE_S = 0.25
MOST_PAUSE_S = 2.0
_REMEMBERED = 1_000
LONGEST_NAME = 1_000
"""No worker can have a workflow with a longer name. Such work is taken and failed here: declining it would only hold up the work behind it."""


class ClaimFilter:
    """Remembers which attempts one slot has declined, and since when."""

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
        """The slot waits this long before its next claim: otherwise it would claim the same message again at once."""

    def declines(self, item: WorkItem, peers: int | None, now: float) -> bool:
        """Returns True for work that another worker should have; the slot then waits `pause_s`. `peers` is None while their number is unknown."""
        if len(item.workflow) > LONGEST_NAME:
            return False
        known = self._knows(item.workflow, item.version)
        alone = peers is not None and peers < 1
        if alone or (known and (self._worker not in item.excluded or peers is None)):
            self._declined, self.pause_s = 0, PAUSE_S
            return False
        patience_s = self._patience_s if known else self._unknown_patience_s if peers else STRANGER_PATIENCE_S
        since = self._since.setdefault((item.job_id, item.workflow_id, item.attempt), now)
        if now - since >= patience_s:
            return False
        if len(self._since) > _REMEMBERED:
            del self._since[next(iter(self._since))]
        self._declined += 1
        self.pause_s = delay_after(self._declined, first_s=2 * PAUSE_S, most_s=MOST_PAUSE_S)
        return True
