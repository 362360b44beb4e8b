"""A consumer of many mailboxes of one memory engine: settles and claims under one lock, at one time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic

from tenure.engines.checked_consumer import CheckedConsumer, CheckedSettlement, ClaimWish, Dead, Ranks
from tenure.engines.contracts import BodyT, FailureCause, Message, ReplyT
from tenure.engines.mailbox_records import HELD, UNSTARTED, MessageRecord
from tenure.engines.mailbox_state import MailboxState
from tenure.engines.memory.polls import MemoryPolls
from tenure.engines.memory.shared_mailbox import MemoryMessage, SharedMailbox
from tenure.engines.ranked_claim import claim_ranked

if TYPE_CHECKING:
    from tenure.engines.memory.engine import MemoryEngine

Deliveries = list[Message[BodyT, ReplyT]]


class MemoryConsumer(MemoryPolls, CheckedConsumer[BodyT, ReplyT, Deliveries[BodyT, ReplyT]], Generic[BodyT, ReplyT]):
    """A claim is known by its deliveries."""

    engine: MemoryEngine
    what = "this consumer"

    def __init__(self, engine: MemoryEngine, body: Any, reply: Any, max_delivery_count: int | None) -> None:
        CheckedConsumer.__init__(self, engine, body, reply, max_delivery_count)
        MemoryPolls.__init__(self, engine, ())
        self._looked_up: tuple[Ranks, list[list[SharedMailbox]]] = ((), [])

    def _cover(self, names: tuple[str, ...]) -> None:
        boxes = tuple(self.handle_of(name).box for name in names)  # before a claim needs them: it holds the lock
        with self._lock:
            self._looked_up = ((), [])
            self._move(boxes)

    def _is_ours(self, message: Any) -> bool:
        return isinstance(message, MemoryMessage) and message.is_in(self.engine)

    def _exchange(
        self,
        group: Sequence[CheckedSettlement],
        wish: ClaimWish | None,
        wait_s: float,
        claims: list[Deliveries[BodyT, ReplyT]],
    ) -> tuple[Deliveries[BodyT, ReplyT], Dead]:
        found: Deliveries[BodyT, ReplyT] = []
        with self._lock:
            outcomes = [message.settle_now(reply) for message, reply in group]
            if wish is not None:
                found = self._take(wish)
                if not found and wait_s:
                    found = self._poll(wait_s, lambda: self._take(wish._replace(ranks=self._order(wish.fair))))
                for box in self.boxes:
                    if box.waiters:
                        box.alert()
        if found:
            claims.append(found)
        self.engine.forward()
        return found, {place: gone for place, gone in enumerate(outcomes) if gone is not None}

    def _take(self, wish: ClaimWish) -> Deliveries[BodyT, ReplyT]:
        """Claims what is ready. The caller holds the lock."""
        now, stage = self._boottime(), UNSTARTED if wish.provisional else HELD
        receipt, limit = str(self.engine.next_number()), self.max_delivery_count
        found: Deliveries[BodyT, ReplyT] = []

        def claim(state: MailboxState, first: bool) -> MessageRecord | None:
            return state.claim(now, wish.lease_s, receipt, stage, limit, True, first)

        def take(state: MailboxState, record: MessageRecord) -> bool:
            handle = self.handle_of(state.name)

            def bury(reason: str) -> None:
                state.bury(record, FailureCause.UNDECODABLE, reason, now)

            if (opened := handle.open_or_bury(record.body, record.is_failure, bury)) is None:
                return False
            found.append(handle.message_class(handle, record, *opened))
            return True

        states = [[box.at(now) for box in rank if box.state.records] for rank in self._ranked(wish)]
        claim_ranked(states, wish.most, claim, take)
        return found

    def _ranked(self, wish: ClaimWish) -> list[list[SharedMailbox]]:
        """Returns the mailboxes in the order of this claim. The names of the cover are looked up once."""
        if self._looked_up[0] is not wish.ranks:
            boxes = {box.state.name: box for box in self.boxes}
            self._looked_up = wish.ranks, [[boxes[name] for name in rank if name in boxes] for rank in wish.ranks]
        return self._looked_up[1]

    def _still_held(self, claims: list[Deliveries[BodyT, ReplyT]]) -> Deliveries[BodyT, ReplyT]:
        given: list[Any] = [message for found in claims for message in found]
        with self._lock:
            return [message for message in given if message.is_held()]

    def _extend_many(self, messages: Sequence[Any], seconds: float) -> set[int]:
        with self._lock:
            return {place for place, message in enumerate(messages) if not message.extend_now(seconds)}
