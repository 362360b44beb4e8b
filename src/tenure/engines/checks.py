"""The checks that every engine makes before it acts, so that bad input gets the same answer everywhere, and the codec of bodies.

Bodies are JSON that a person can read, checked against the type of their mailbox. `SendsAcross` checks messages for several mailboxes, and an append
that brings messages, before an engine does it in one step. It does not know how the engine does that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tenure.engines import contracts as c
from tenure.engines.contracts import Appended, Engine, Journal, Mailbox, Message, Outgoing, Sent
from tenure.errors import ConfigurationError, LimitError, SerializationError

if TYPE_CHECKING:
    from tenure.engines.checked_mailbox import CheckedMessage


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/\-]{0,127}")


def check_name(name: str, what: str = "name") -> str:
    if not _NAME.fullmatch(name):
        raise LimitError(
            what,
            repr(name),
            "1 to 128 letters, digits, '.', '_', '-' or '/', starting with a letter or digit",
        )
    return name


def check_seconds(field: str, value: float, most: float = c.MAX_VISIBILITY_S) -> float:
    if not 0 <= value <= most:  # also refuses NaN
        raise LimitError(field, value, f"between 0 and {most:,} s")
    return value


def check_max_messages(value: int) -> int:
    if not 1 <= value <= c.MAX_MESSAGES:
        raise LimitError("max_messages", value, f"between 1 and {c.MAX_MESSAGES:,}")
    return value


def check_claim_size(value: int) -> int:
    """As `check_max_messages`; 0 claims nothing."""
    return value if value == 0 else check_max_messages(value)


def check_cover(ranks: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Returns the ranks, without empty ones and names that a rank before has."""
    known: dict[str, int] = {}
    for place, rank in enumerate(ranks):
        for name in rank:
            known.setdefault(check_name(name, "mailbox name"), place)
    if len(known) > c.MAX_COVERED:
        remedy = "Use several workers, each for some of the workflows"
        raise LimitError("cover", f"{len(known):,} mailboxes", f"at most {c.MAX_COVERED:,}", remedy=remedy)
    wanted = (tuple(name for name, own in known.items() if own == place) for place in sorted({*known.values()}))
    return tuple(wanted)


def check_batch(messages: Sequence[Any]) -> None:
    if len(messages) > c.MAX_MESSAGES:
        raise LimitError(
            "send_many",
            f"{len(messages):,} messages",
            f"at most {c.MAX_MESSAGES:,}",
            remedy="Send them in parts",
        )


def check_size(field: str, value: bytes, most: int, *, remedy: str | None = None) -> bytes:
    if len(value) > most:
        raise LimitError(field, f"{len(value):,} bytes", f"at most {most:,} bytes", remedy=remedy)
    return value


def check_body(encoded: bytes, field: str = "body") -> bytes:
    return check_size(field, encoded, c.MAX_BODY_BYTES, remedy="Put large data into the store and send its key")


def check_checkpoint(checkpoint: bytes | None) -> None:
    if checkpoint is not None:
        check_size(
            "checkpoint",
            checkpoint,
            c.MAX_BODY_BYTES,
            remedy="Put large state into the store and keep its key",
        )


def check_has_key(key: str | None, message_id: str) -> str:
    if key is None:
        raise ConfigurationError(f"message {message_id} has no key, so it has no steps", remedy="Send it with key=")
    return key


def check_step(record: bytes) -> None:
    check_size("step", record, c.MAX_BODY_BYTES, remedy="Put large results into the store and return their key")


def check_key(key: str, field: str = "key") -> str:
    if not 1 <= len(key) <= c.MAX_KEY_CHARS or "\0" in key:
        raise LimitError(field, f"{len(key)} characters", f"1 to {c.MAX_KEY_CHARS} characters without NUL")
    return key


def check_generation(generation: int) -> int:
    if not 0 <= generation < 2**53:
        raise LimitError("generation", generation, "between 0 and 2**53")
    return generation


def check_reply_to(reply_to: c.Mailbox[Any, Any] | str) -> str:
    """Returns the name of the mailbox that is to get the answers."""
    return check_name(reply_to if isinstance(reply_to, str) else reply_to.name, "reply_to")


def check_delivery_limit(max_delivery_count: int | None) -> int | None:
    if max_delivery_count is not None and max_delivery_count < 1:
        raise LimitError("max_delivery_count", max_delivery_count, "1 or more, or None for no limit")
    return max_delivery_count


def check_append(events: Sequence[bytes], epoch: int, expect: int, append_id: str) -> None:
    if not events:
        raise LimitError("events", "an empty sequence", "at least one event")
    total = sum(map(len, events))
    if total > c.MAX_APPEND_BYTES:
        raise LimitError(
            "events",
            f"{total:,} bytes",
            f"at most {c.MAX_APPEND_BYTES:,} bytes together",
            remedy="Split the append",
        )
    if epoch < 0 or expect < 0:
        raise LimitError("epoch, expect", (epoch, expect), "0 or more")
    check_key(append_id, "append_id")


def check_snapshot(state: bytes) -> None:
    check_size("snapshot", state, c.MAX_SNAPSHOT_BYTES, remedy="Archive finished jobs sooner")


def check_store_value(value: bytes) -> None:
    check_size("value", value, c.MAX_STORE_BYTES, remedy="Store it in parts, or elsewhere and keep its address")


def check_ttl(ttl: float) -> float:
    if not 0 < ttl <= c.MAX_TTL_S:
        raise LimitError("ttl", ttl, f"above 0 and at most {c.MAX_TTL_S:,} s")
    return ttl


def check_values(values: Mapping[str, bytes | None] | Mapping[str, bytes], ttl: float | None) -> float | None:
    """Checks what is to be stored, and returns the ttl."""
    for key, value in values.items():
        check_key(key)
        check_store_value(value or b"")
    if values:
        check_max_messages(len(values))
    return None if ttl is None else float(check_ttl(ttl))


_encode = msgspec.json.Encoder().encode


class BodyCodec:
    """Encodes and decodes the bodies, or the replies, of one mailbox."""

    __slots__ = ("decode", "kind")

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        try:
            # `decode` raises `msgspec.DecodeError` (its message says where and why) for what does not fit the type.
            self.decode: Callable[[bytes], Any] = msgspec.json.Decoder(kind).decode
        except TypeError as error:
            raise SerializationError(
                f"{kind!r} cannot be a message type: {error}",
                remedy="Use a dataclass, a msgspec.Struct, a TypedDict or plain JSON types",
            ) from error

    def encode(self, body: Any, field: str = "body") -> bytes:
        """Raises `SerializationError` for what JSON cannot say or the type does not allow, `LimitError` for its size."""
        try:
            encoded = _encode(body)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise SerializationError(
                f"a {field} of type {type(body).__name__} cannot be written as JSON: {error}",
                remedy="Send a dataclass, a msgspec.Struct or plain JSON types",
            ) from error
        if self.kind is not Any:
            # The sender should hear of a body that no consumer could read, not the dead letters.
            try:
                self.decode(encoded)
            except msgspec.DecodeError as error:
                raise SerializationError(
                    f"a {field} of type {type(body).__name__} does not fit {self.kind!r}: {error}",
                    remedy="Send what the mailbox was opened for",
                ) from error
        return encoded if len(encoded) <= c.MAX_BODY_BYTES else check_body(encoded, field)


class EntryPlace(NamedTuple):
    """Where an entry is to be written, and under which id it is found again."""

    epoch: int
    expect: int
    append_id: str


class CheckedAppend(NamedTuple):
    """The arguments of one `append_with`."""

    journal: Any
    events: list[bytes]
    place: EntryPlace
    batches: list[tuple[Any, list[CheckedMessage]]]
    acknowledges: list[Any]


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
        return self._append_with(*self.checked_append(journal, events, (epoch, expect, append_id), sends, acknowledges))

    def checked_append(
        self,
        journal: Journal,
        events: Sequence[bytes],
        place: tuple[int, int, str],
        sends: Sequence[tuple[Mailbox[Any, Any], Sequence[Outgoing[Any]]]],
        acknowledges: Sequence[Message[Any, Any]],
    ) -> CheckedAppend:
        """Checks the arguments of `append_with`, and encodes the messages."""
        check_append(events, *place)
        own = [(self._own(mailbox), messages) for mailbox, messages in sends if messages]
        check_batch([message for _, messages in own for message in messages])
        batches = [(mailbox, mailbox.checked(messages)) for mailbox, messages in own]
        if getattr(journal, "engine", None) is not self or not all(map(self._acknowledges, acknowledges)):
            raise ConfigurationError(
                "the journal, or a delivery to acknowledge, belongs to another engine",
                remedy="Append to and acknowledge from one engine in one step",
            )
        return CheckedAppend(
            journal, [bytes(event) for event in events], EntryPlace(*place), batches, list(acknowledges)
        )

    def _acknowledges(self, message: Message[Any, Any]) -> bool:
        """Returns True when a step of this engine can acknowledge this delivery."""
        raise NotImplementedError

    def _append_with(
        self, journal: Any, events: list[bytes], place: EntryPlace, batches: list[Any], acknowledges: list[Any]
    ) -> Appended:
        """Appends, queues and acknowledges in one step. Everything was checked."""
        raise NotImplementedError
