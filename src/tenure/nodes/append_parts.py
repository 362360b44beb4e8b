"""The messages that leave with an append, or are acknowledged by it: in one durable step with the decision that wants it, where the engine can.

`OrderedMessage` pairs a message with the command that records it as sent. The writer (`ledger`) decides that command after those of its callers, and
writes it into the same entry. So a message is in the engine if and only if the journal says that it was sent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tenure.engines.contracts import Mailbox, Message, Outgoing
from tenure.jobs.decisions import Command


class OrderedMessage(NamedTuple):
    """One message to send with the append that records it."""

    command: Command
    """Records that it was sent. Where it decides nothing, the message is not sent."""
    mailbox: Mailbox[Any, Any]
    message: Outgoing[Any]


class AppendParts(NamedTuple):
    """Everything that one append brings beside its events."""

    sends: tuple[tuple[Mailbox[Any, Any], tuple[Outgoing[Any], ...]], ...] = ()
    acknowledges: tuple[Message[Any, Any], ...] = ()

    @classmethod
    def of(cls, orders: list[OrderedMessage], acknowledges: list[Message[Any, Any]]) -> AppendParts:
        return cls(tuple((order.mailbox, (order.message,)) for order in orders), tuple(acknowledges))


NO_PARTS = AppendParts()
