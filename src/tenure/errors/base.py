"""Defines the root of the tree, the errors of settings and of Tenure itself, of engines and of what they hold, of health, gossip and simulated runs.

Engines hold mailboxes, journals, terms and fenced keys.
"""

from __future__ import annotations

import os
from typing import ClassVar

MOST_FACT_CHARS = 1_000
"""The most characters of a fact that quotes a foreign error, whose text may be as long as its input."""


class TenureError(Exception):
    """The root. `str(error)` is the fact, followed by the remedy where there is one."""

    retryable: ClassVar[bool] = False
    remedy: str = ""

    def __init__(self, fact: str, *, remedy: str | None = None) -> None:
        if remedy is not None:
            self.remedy = remedy
        self.fact = fact
        super().__init__(f"{fact}. {self.remedy}" if self.remedy else fact)

    @property
    def page(self) -> str:
        """Where the documentation tells of this kind of error; `tools/reference_pages.py` writes a heading for each.

        It is a place in the repository, or on your site of it (`make docs`) when TENURE_DOCS names that.
        """
        site = os.environ.get("TENURE_DOCS", "").rstrip("/")
        return (
            f"{site}/errors.html#{type(self).__name__.lower()}"
            if site
            else f"docs/errors.md#{type(self).__name__.lower()}"
        )


class ConfigurationError(TenureError, ValueError):
    """A setting or an argument is wrong. Nothing was done."""


class LimitError(ConfigurationError):
    """A number or a size is outside of what is allowed."""

    def __init__(self, field: str, value: object, allowed: str, *, remedy: str | None = None) -> None:
        self.field, self.value, self.allowed = field, value, allowed
        super().__init__(f"{field} is {value}, and must be {allowed}", remedy=remedy)


class OutOfBoundsError(LimitError):
    """One field is outside of the bounds that its type states, whatever the other fields say."""

    remedy = "docs/limits.md and /v1/openapi.json list all bounds"


class LadderError(ConfigurationError):
    """Timeouts that cannot work together: a shorter one would not act before the longer one that relies on it."""

    def __init__(self, ladder: str, broken: list[str]) -> None:
        self.ladder, self.broken = ladder, broken
        super().__init__(
            "these timeouts cannot work together:\n" + ladder + "\n" + "\n".join(f"- {rule}" for rule in broken)
        )


class PortTakenError(ConfigurationError):
    """Another process listens on the port that we were to serve. Nothing was started."""

    def __init__(self, what: str, host: str, port: int, reason: str) -> None:
        self.host, self.port = host, port
        super().__init__(
            f"cannot serve {what} on {host or 'any address'}, port {port}: {reason}",
            remedy="Choose another port, 0 for a free one, or end the process that has it",
        )


class ProductFailedError(TenureError):
    """Tenure's own code raised while it handled one thing. That thing is refused; everything else goes on."""

    remedy = "This is a fault of Tenure: its node's log has the traceback, please report it"

    def __init__(self, doing: str, cause: BaseException, trace: str = "") -> None:
        self.doing, self.trace = doing, trace
        super().__init__(f"Tenure itself failed while {doing}: {type(cause).__name__}: {cause}"[:MOST_FACT_CHARS])


class EngineError(TenureError):
    """The place where work and decisions live did not do what it was asked."""


class EngineUnavailableError(EngineError):
    """The engine is out of reach. The request may or may not have been done."""

    retryable = True
    remedy = "Check that the server runs and can be reached; Tenure goes on trying"


class MailboxConnectionError(EngineUnavailableError):
    """A mailbox lost its connection: this is never reported as an empty queue."""


class EngineFullError(EngineError):
    """No room is left: disk, memory or quota. Nothing was changed."""

    retryable = True
    remedy = "Make room and try again; nothing was changed"


class EngineBusyError(EngineError):
    """Another process holds the engine for longer than we were willing to wait."""

    retryable = True
    remedy = "Find the process that holds it, or wait longer"


class EngineReadOnlyError(EngineError):
    """The engine may not be written by this user."""


class EngineCorruptError(EngineError):
    """A stored value cannot be read."""


class JournalDamagedError(EngineCorruptError):
    """An entry or the snapshot of a journal cannot be read, has a wrong checksum, or cannot be applied.

    `part` is "entry" or "snapshot", `seq` its sequence (0 where nothing says which), `why` what is wrong with it.
    """

    remedy = "See it with `tenure journal check --engine URL`, mend it with `tenure journal repair`; no node leads until then"

    def __init__(self, journal: str, part: str, seq: int, why: str, *, remedy: str | None = None) -> None:
        self.journal, self.part, self.seq, self.why = journal, part, seq, why
        which = {"entry": f"entry {seq}", "snapshot": f"the snapshot at {seq}"}.get(part, part)
        super().__init__(f"{which} of journal {journal!r} is damaged: {why}", remedy=remedy)


class EngineVersionError(EngineError):
    """A newer Tenure wrote this data, or the server is older than we support."""


class EngineRefusedError(EngineError):
    """This engine cannot give that guarantee in this set-up, and says so rather than pretend."""


class EngineWentBackError(EngineError):
    """The engine shows less than it had acknowledged: a failover or a restart lost writes."""


class EngineClosedError(EngineError):
    """The engine was used after close()."""


class MailboxError(TenureError):
    """Something about one mailbox or one message."""


class ReceiptHandleExpiredError(MailboxError):
    """This delivery is no longer ours: its lease ran out, it was settled, or a newer generation replaced it."""

    remedy = "Stop the work: another delivery may be running, and this one's result is refused"

    def __init__(self, message_id: str, reason: str = "its lease ran out") -> None:
        self.message_id, self.reason = message_id, reason
        super().__init__(f"receipt handle expired for message {message_id}: {reason}")


class KeyRefusedError(MailboxError):
    """A key's generation is not newer than the one that was sent, or the key was revoked."""

    def __init__(self, key: str, generation: int, current: int, *, revoked: bool = False) -> None:
        self.key, self.generation, self.current, self.revoked = key, generation, current, revoked
        why = "the key was revoked" if revoked else f"generation {current} was sent already"
        super().__init__(
            f"message with key {key!r}, generation {generation}, refused: {why}",
            remedy="Nothing is lost: this work is already known" if not revoked else "Cancelled work stays cancelled",
        )


class MailboxClosedError(MailboxError):
    """The mailbox was used after close()."""


class ReplyNotAvailableError(MailboxError):
    """The sender of this message did not say where to reply."""

    remedy = "Send it with reply_to=, or acknowledge() without a reply"


class SerializationError(MailboxError):
    """A body that cannot be written as JSON, or does not fit the mailbox's type."""


class JournalError(TenureError):
    """Something about one journal."""


class StaleEpochError(JournalError):
    """A newer leader has written: this one was deposed."""

    remedy = "Step down, and follow the journal"

    def __init__(self, epoch: int, current: int) -> None:
        self.epoch, self.current = epoch, current
        super().__init__(f"append with epoch {epoch} refused: epoch {current} has written")


class SequenceConflictError(JournalError):
    """Another writer appended first, so this decision was made on old state."""

    remedy = "Read the tail: if your append_id is there it succeeded, otherwise decide again"

    def __init__(self, expect: int, last: int) -> None:
        self.expect, self.last = expect, last
        super().__init__(f"append expected to follow sequence {expect}, and the last is {last}")


class StaleSnapshotError(JournalError):
    """There is a newer snapshot; a snapshot only moves forward."""

    def __init__(self, seq: int, current: int) -> None:
        self.seq, self.current = seq, current
        super().__init__(f"snapshot at sequence {seq} refused: there is one at {current}")


class Truncated(JournalError):
    """The entries asked for were folded into a snapshot and removed."""

    remedy = "Start from the snapshot, then read after its sequence"

    def __init__(self, after: int, first: int) -> None:
        self.after, self.first = after, first
        super().__init__(f"entries after {after} are gone: the journal begins at {first}")


class DeposedError(TenureError):
    """This node does not lead, or no longer does: its decisions are refused."""

    remedy = "Ask the node that leads"


class TermLostError(TenureError):
    """Another node leads, or the term ran out before it was renewed."""

    remedy = "Step down; campaign again"

    def __init__(self, name: str, epoch: int, current: int) -> None:
        self.name, self.epoch, self.current = name, epoch, current
        super().__init__(f"term {epoch} of election {name!r} is over (the newest is {current})")


class StaleFenceError(TenureError):
    """A newer attempt has written that key."""

    remedy = "Stop the work: its results are refused"

    def __init__(self, key: str, fence: tuple[int, int], current: tuple[int, int]) -> None:
        self.key, self.fence, self.current = key, fence, current
        super().__init__(f"write to {key!r} with fence {tuple(fence)} refused: {tuple(current)} has written")


class SimulationError(TenureError):
    """A simulated run could not go on."""


class SimulationForbiddenError(SimulationError):
    """Simulated code asked the real machine for something that a seed cannot decide."""


class SimulationDeadlockError(SimulationError):
    """Nothing is ready to run and no timer is set, so nothing would ever happen again."""


class SimulationRunawayError(SimulationError):
    """A run took more steps or more virtual time than it may."""


class InvariantError(SimulationError):
    """The simulated system broke a promise."""


class GossipError(TenureError):
    """Something about the gossip plane. It costs knowledge of others, never work."""


class WireError(GossipError):
    """Bytes that are not memberlist's protocol, or not meant for this pool."""


class JoinError(GossipError):
    """None of the seeds let us in."""

    retryable = True
    remedy = "Check addresses, label and keys; the node goes on without a pool and tries its seeds again"


class HealthError(TenureError):
    """Something about the health of a node."""


class UnknownWorkerError(HealthError):
    """That worker was never registered here, or was removed: it has no deadline that could move."""

    remedy = "Register the worker first; one that was evicted rejoins under a new incarnation"

    def __init__(self, worker_id: str) -> None:
        self.worker_id = worker_id
        super().__init__(f"worker {worker_id!r} is not known here")


class PiggybackError(HealthError):
    """Bytes that came as a node's health and are not."""

    remedy = "Drop them and count it; check that both nodes run compatible versions"
