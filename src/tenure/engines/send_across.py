"""Checks messages for several mailboxes before an engine queues them in one step. It does not know how the engine does that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tenure.engines.checks import check_batch
from tenure.engines.contracts import Engine, Mailbox, Outgoing, Sent
from tenure.errors import ConfigurationError

if TYPE_CHECKING:
    from tenure.engines.checked_mailbox import CheckedMessage


class SendsAcross(Engine):
    """A base of every engine: what sends to several of its mailboxes."""

    def send_across(self, batches: Sequence[tuple[Mailbox[Any, Any], Sequence[Outgoing[Any]]]]) -> list[Sent]:
        own = [(self._own(mailbox), messages) for mailbox, messages in batches if messages]
        if len(own) < 2:
            return [sent for mailbox, messages in own for sent in mailbox.send_many(messages)]
        check_batch([message for _, messages in own for message in messages])
        # All of it is checked before any of it is queued.
        return self._send_across([(mailbox, mailbox.checked(messages)) for mailbox, messages in own])

    def _own(self, mailbox: Mailbox[Any, Any]) -> Any:
        if getattr(mailbox, "engine", None) is not self:
            raise ConfigurationError(
                f"mailbox {mailbox.name!r} belongs to another engine",
                remedy="Send to the mailboxes of each engine by itself",
            )
        return mailbox

    def _send_across(self, batches: list[tuple[Any, list[CheckedMessage]]]) -> list[Sent]:
        """Queues at least one message of each of several mailboxes of ours, in order."""
        return [sent for mailbox, messages in batches for sent in mailbox._send_many(messages)]
