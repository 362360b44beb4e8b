"""A loop around one function, for work that needs no class of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic

from tenure.beat.heartbeat import Heartbeat
from tenure.engines.contracts import BodyT, Mailbox, Message, ReplyT
from tenure.work.mailbox_loop import MailboxLoop, OnLeaseLost


class FunctionLoop(MailboxLoop[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """Calls `function(message, heartbeat)` for each message; what it returns is the reply.

    A lost lease cancels the work by default: its next beat raises `LeaseLostError`. Other settings are those of `MailboxLoop`.
    """

    def __init__(
        self,
        requests: Mailbox[BodyT, ReplyT],
        function: Callable[[Message[BodyT, ReplyT], Heartbeat], ReplyT | None],
        *,
        on_lease_lost: OnLeaseLost | str = OnLeaseLost.CANCEL,
        **settings: Any,
    ) -> None:
        super().__init__(requests, on_lease_lost=on_lease_lost, **settings)
        self._function = function

    def handle(self, message: Message[BodyT, ReplyT]) -> ReplyT | None:
        return self._function(message, self.heartbeat)
