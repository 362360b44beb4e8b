"""The commands of the log: each is one message of the stream, or several together are. Tags tell them apart, and stay valid for as long as the log is kept.

A command says what is wanted; what comes of it is decided where it stands in the log, by everybody alike (`ledger`). So the
fields of a command, and what the ledger makes of them, must never change their meaning: a new meaning is a new tag.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tenure.engines.contracts import FailureCause


class LogCommand(msgspec.Struct, array_like=True, frozen=True):
    """`id` is `process.number`, and names one asking for it: the answer finds its caller by it, and the fold drops a repetition."""

    id: str


class Item(msgspec.Struct, array_like=True, frozen=True):
    """One message of a `Send`."""

    body: bytes
    key: str | None = None
    generation: int = 0
    reply_to: str | None = None
    delay: float = 0.0


class Send(LogCommand, tag="send", frozen=True):
    box: str
    items: list[Item]


class SendAcross(LogCommand, tag="send-across", frozen=True):
    """Queue messages of several mailboxes in their order, each run as (mailbox, messages). A mailbox may come several times."""

    runs: list[tuple[str, list[Item]]]


class Deliver(LogCommand, tag="deliver", frozen=True):
    """Acknowledge the deliveries that an entry of a journal records, each (mailbox, message, receipt), and send its messages.

    Nothing happens where a command for this entry, or for a later one, came before.
    """

    journal: str
    seq: int
    runs: list[tuple[str, list[Item]]]
    ended: list[tuple[str, str, str]]


class Claim(LogCommand, tag="claim", frozen=True):
    """The command's id becomes the receipt: nobody else can know it before, and no second claim ever has it."""

    box: str
    most: int
    lease: float
    limit: int | None
    provisional: bool


class Await(LogCommand, tag="await", frozen=True):
    """Claim what is there; where nothing is, stand: what becomes visible within `seconds` is handed over by whatever command brings it."""

    box: str
    most: int
    lease: float
    limit: int | None
    provisional: bool
    seconds: float


class ClaimApart(Claim, tag="claim-apart", frozen=True):
    """A claim that knows of suspect messages (decision 0210): they come alone and count, and no number is given out again."""


class AwaitApart(Await, tag="await-apart", frozen=True):
    """As `ClaimApart`, and stands where nothing is there."""


class Cover(LogCommand, tag="cover", frozen=True):
    """The mailboxes of a consumer from now on, in ranks. A claim of it that stands gets what they hold."""

    consumer: str
    version: int
    ranks: list[list[str]]


class ConsumerExchange(LogCommand, tag="exchange", frozen=True):
    """Settle deliveries, each (mailbox, message, receipt, reply); then claim from the mailboxes of a consumer, and stand as `Await` does.

    Nothing happens, and the answer says so, where its mailboxes are not known in this version.
    """

    settled: list[tuple[str, str, str, bytes | None]]
    consumer: str
    version: int
    fair: bool
    most: int
    lease: float
    limit: int | None
    provisional: bool
    seconds: float


class ExtendMany(LogCommand, tag="extend-many", frozen=True):
    """Hold deliveries for longer, each (mailbox, message, receipt)."""

    held: list[tuple[str, str, str]]
    seconds: float


class Confirm(LogCommand, tag="confirm", frozen=True):
    """The new holder confirms a hand-over: from now on it holds the message for the lease that it asked for."""

    box: str
    held: list[tuple[str, str]]
    lease: float


class Withdraw(LogCommand, tag="withdraw", frozen=True):
    """End the standing claim with this receipt. That of a consumer is in no mailbox: its box is empty."""

    box: str
    receipt: str


class Look(LogCommand, tag="look", frozen=True):
    """Only its time matters: what is due becomes visible, and is handed over."""

    box: str


class End(LogCommand, tag="end", frozen=True):
    """Acknowledge deliveries, each by (message id, receipt); with a reply, which then is for the only one."""

    box: str
    held: list[tuple[str, str]]
    reply: bytes | None = None


class Nack(LogCommand, tag="nack", frozen=True):
    box: str
    message: str
    receipt: str
    delay: float
    limit: int | None


class Release(LogCommand, tag="release", frozen=True):
    box: str
    held: list[tuple[str, str]]


class Extend(LogCommand, tag="extend", frozen=True):
    box: str
    message: str
    receipt: str
    seconds: float
    checkpoint: bytes | None


class AppendStep(LogCommand, tag="step", frozen=True):
    """Append a record to the steps of the message's key, and hold the message for longer."""

    box: str
    message: str
    receipt: str
    seconds: float
    record: bytes


class SettleWithReply(LogCommand, tag="reply", frozen=True):
    box: str
    message: str
    receipt: str
    body: bytes


class Bury(LogCommand, tag="bury", frozen=True):
    box: str
    message: str
    receipt: str
    cause: FailureCause
    reason: str


class Revoke(LogCommand, tag="revoke", frozen=True):
    box: str
    key: str


class WithdrawKey(LogCommand, tag="withdraw-key", frozen=True):
    """Take the message of a key back, up to a generation, unless it is leased."""

    box: str
    key: str
    generation: int


class Purge(LogCommand, tag="purge", frozen=True):
    box: str


class Replay(LogCommand, tag="replay", frozen=True):
    box: str
    message: str


class Forget(LogCommand, tag="forget", frozen=True):
    """Delete dead letters: the one named, or all."""

    box: str
    message: str | None = None


class Campaign(LogCommand, tag="campaign", frozen=True):
    election: str
    candidate: str
    ttl: float
    above: int


class Renew(LogCommand, tag="renew", frozen=True):
    election: str
    epoch: int
    ttl: float


class Resign(LogCommand, tag="resign", frozen=True):
    election: str
    epoch: int


class Put(LogCommand, tag="put", frozen=True):
    """The value itself is a blob that was written before; here it gets its name."""

    store: str
    key: str
    blob: str
    chunks: int
    fence: tuple[int, int] | None
    ttl: float | None


class Remove(LogCommand, tag="remove", frozen=True):
    store: str
    key: str


class Compacted(LogCommand, tag="compacted", frozen=True):
    """A snapshot up to `seq`, of `size` bytes, is kept, and the log before it may go."""

    seq: int
    size: int


AnyCommand: TypeAlias = (
    Send
    | SendAcross
    | Deliver
    | Claim
    | Await
    | ClaimApart
    | AwaitApart
    | Cover
    | ConsumerExchange
    | ExtendMany
    | Confirm
    | Withdraw
    | Look
    | End
    | Nack
    | Release
    | Extend
    | AppendStep
    | SettleWithReply
    | Bury
    | Revoke
    | WithdrawKey
    | Purge
    | Replay
    | Forget
    | Campaign
    | Renew
    | Resign
    | Put
    | Remove
    | Compacted
)


class Several(msgspec.Struct, array_like=True, frozen=True, tag="several"):
    """Commands of one process in one message (decision 0830). Each is folded as if it had come by itself, in this order and at this time."""

    commands: list[AnyCommand]


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(AnyCommand | Several).decode
