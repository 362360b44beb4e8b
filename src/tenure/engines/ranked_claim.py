"""One claim over many mailboxes, as the pure state machines decide it: which message comes next. The memory and the NATS engine share it.

It is told the time and does no I/O, and is alike in every process that folds the same log: see `mailbox_state`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import TypeVar

from tenure.engines.mailbox_records import MessageRecord
from tenure.engines.mailbox_state import MailboxState

StateT = TypeVar("StateT", bound=MailboxState)


def claim_ranked(
    ranks: Sequence[Sequence[StateT]],
    most: int,
    claim: Callable[[StateT, bool], MessageRecord | None],
    take: Callable[[StateT, MessageRecord], bool],
) -> int:
    """Claims from the first rank first, and within a rank what has been visible for longest. The callers have promoted the states.

    `claim(state, first)` leases the next message of one mailbox; `take` says whether a delivery counts, as one that cannot be decoded does not.
    Returns the number of deliveries. A batch ends before the first suspect message; one that comes first is the whole batch.
    """
    taken = 0
    for rank in ranks:
        heads = [(since, place) for place, state in enumerate(rank) if (since := visible_since(state)) is not None]
        heapify(heads)
        while heads:
            state = rank[heads[0][1]]
            record = claim(state, taken == 0)
            if record is None and visible_since(state) is not None:
                return taken  # a suspect one, and we have others
            if record is not None and take(state, record):
                taken += 1
                if record.suspect or taken == most:
                    return taken
            _, place = heappop(heads)
            if (since := visible_since(state)) is not None:
                heappush(heads, (since, place))
    return taken


def visible_since(state: MailboxState) -> float | None:
    """Returns when the next message of a mailbox became visible; None when there is none. A released one has its old place."""
    head = state.next_ready()
    return None if head is None else head.due or head.enqueued_at - state.epoch
