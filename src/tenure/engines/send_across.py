"""Checks messages for several mailboxes, and an append that brings messages, before an engine does it in one step. It does not know how the engine does that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tenure.engines.checks import check_append, check_batch
from tenure.engines.contracts import Appended, Engine, Journal, Mailbox, Message, Outgoing, Sent
from tenure.errors import ConfigurationError

if TYPE_CHECKING:
    from tenure.engines.checked_mailbox import CheckedMessage


class EntryPlace(NamedTuple):
    """Where an entry is to be written, and under which id it is found again."""

    epoch: int
    expect: int
    append_id: str


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

    def append_with(
        self,
        journal: Journal,
        events: Sequence[bytes],
        *,
        epoch: int,
        expect: int,
        append_id: str,
        sends: Sequence[tuple[Mailbox[Any, Any], Sequence[Outgoing[Any]]]] = (),
        acknowledges: Sequence[Message[Any, Any]] = (),
    ) -> Appended:
        if not self.appends_in_one_step:
            return super().append_with(
                journal,
                events,
                epoch=epoch,
                expect=expect,
                append_id=append_id,
                sends=sends,
                acknowledges=acknowledges,
            )
        check_append(events, epoch, expect, append_id)
        own = [(self._own(mailbox), messages) for mailbox, messages in sends if messages]
        check_batch([message for _, messages in own for message in messages])
        batches = [(mailbox, mailbox.checked(messages)) for mailbox, messages in own]
        if getattr(journal, "engine", None) is not self or not all(map(self._acknowledges, acknowledges)):
            raise ConfigurationError(
                "the journal, or a delivery to acknowledge, belongs to another engine",
                remedy="Append to and acknowledge from one engine in one step",
            )
        place = EntryPlace(epoch, expect, append_id)
        done: Appended = self._append_with(
            journal, [bytes(event) for event in events], place, batches, list(acknowledges)
        )
        return done

    def _acknowledges(self, message: Message[Any, Any]) -> bool:
        """Returns True when a step of this engine can acknowledge this delivery."""
        raise NotImplementedError

    def _append_with(
        self, journal: Any, events: list[bytes], place: EntryPlace, batches: list[Any], acknowledges: list[Any]
    ) -> Appended:
        """Appends, queues and acknowledges in one step. Everything was checked."""
        raise NotImplementedError
