"""The settings of a worker's slots. Missing ones are derived from the others; construction checks that the times form a ladder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tenure.beat.ladder import Ladder
from tenure.engines.contracts.engine import MAX_VISIBILITY_S, MAX_WAIT_S
from tenure.errors import LimitError

if TYPE_CHECKING:
    from tenure.work.result_signatures import ResultKeys

LEAST_SETTLE_S = 10.0
"""A busy machine and a slow store take seconds to write a log and an outcome, however short the lease is."""


@dataclass(frozen=True, slots=True)
class SlotSettings:
    """Settings of a supervisor and its slots; all times in seconds."""

    queue: str = "work"
    """The mailbox to serve."""
    more_queues: tuple[str, ...] = ()
    """Others to serve beside it, in the order in which they are looked at: see `lanes`."""
    slots: int = 2
    """Slot processes, each with one attempt at a time (or `concurrency` async ones)."""
    concurrency: int = 1
    """The number of async workflows that one slot runs at once."""
    lease_s: float = 60.0
    """The lease keeps work without a sign of life from other workers for this long. It does not limit how long work may run."""
    claim_s: float = 10.0
    """The short lease of work that was claimed and has not been seen running."""
    stall_s: float = 300.0
    """The longest silence between beats, for workflows that do not set their own."""
    grace_s: float = 5.0
    """Between a request to stop and SIGKILL. The lease is held through it, so it may be longer than the lease."""
    settle_s: float | None = None
    """The outcome of ended work must be settled within this. None means as long as the lease, and 10 s at least."""
    wait_s: float = 20.0
    """One request for work waits this long at the engine. It wakes at once, so a longer wait only asks less often."""
    drain: Literal["finish", "handover"] = "finish"
    """On SIGTERM, running work finishes, or stops so that another worker goes on from its checkpoint."""
    drain_timeout_s: float = 3_600.0
    """With `drain="finish"`: what still runs after this is stopped as in a hand-over."""
    handover_s: float = 0.0
    """With `drain="handover"`: the seconds within which running work stops, each attempt when the least work is lost. 0: all at once."""
    tick_s: float = 0.1
    """The supervisor looks at the board this often: a stall or a lost lease is seen at most this much later."""
    memory_limit_mb: int | None = None
    """Address space of one slot process."""
    slot_start: Literal["auto", "fork", "spawn"] = "auto"
    """Slots are forked from a process that has imported the modules once, or spawned. `auto` spawns where a fork is unsafe; `fork` refuses to serve then."""
    courier: str = ""
    """`module:function` that connects a worker with the managers, for workflows that submit jobs; empty: they cannot."""
    token: str = field(default="", repr=False)
    """The token of the datacenter. The supervisor uses it; slots do not get it."""
    result_keys: ResultKeys | None = field(default=None, repr=False)
    """The keys with which the supervisor signs outcomes; slots do not get them. None: it signs nothing."""
    waits_for_engine: bool = False
    """An engine that is away at the start is waited for. Otherwise the supervisor raises its error."""

    def __post_init__(self) -> None:
        for name in ("lease_s", "claim_s", "stall_s", "grace_s", "wait_s", "drain_timeout_s", "tick_s"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise LimitError(name, value, "above 0 seconds")
        for name, most in (("lease_s", MAX_VISIBILITY_S), ("claim_s", MAX_VISIBILITY_S), ("wait_s", MAX_WAIT_S)):
            if (value := getattr(self, name)) > most:  # every engine refuses it: no lease would ever be renewed
                raise LimitError(name, value, f"at most {most:,} seconds")
        if not 1 <= self.slots <= 512:
            raise LimitError("slots", self.slots, "between 1 and 512")
        if not 1 <= self.concurrency <= 1_000:
            raise LimitError("concurrency", self.concurrency, "between 1 and 1,000")
        if self.memory_limit_mb is not None and self.memory_limit_mb < 64:
            raise LimitError("memory_limit_mb", self.memory_limit_mb, "64 or more, or None")
        if not 0 <= self.handover_s < float("inf"):
            raise LimitError("handover_s", self.handover_s, "0 seconds or more")
        if self.slot_start not in ("auto", "fork", "spawn"):
            raise LimitError("slot_start", self.slot_start, "auto, fork or spawn")
        if self.settle_s is not None and not 0 < self.settle_s < float("inf"):
            raise LimitError("settle_s", self.settle_s, "above 0 seconds, or None")
        self.ladder.check()

    @property
    def ladder(self) -> Ladder:
        """Returns these times as a ladder. Construction fails, and draws the ladder, where one time cannot act before the next."""
        return Ladder(
            visibility_timeout=self.lease_s,
            extension_interval=self.extend_every_s,
            tick=self.tick_s,
            claim=self.claim_s,
            stall=self.stall_s,
            grace=self.grace_s,
            settle=self.settle_within_s,
        )

    @property
    def lanes(self) -> tuple[str, ...]:
        """Returns all mailboxes to serve, each once. Earlier ones go first, and later ones never starve (decision 0146)."""
        return tuple(dict.fromkeys((self.queue, *self.more_queues)))

    @property
    def leave_within_s(self) -> float:
        """Returns the seconds within which running work has to have ended, once the worker drains."""
        return self.handover_s if self.drain == "handover" else self.drain_timeout_s

    @property
    def settle_within_s(self) -> float:
        """Returns the seconds within which an outcome must be settled. While the engine is away it may wait as long as its lease."""
        return max(self.lease_s, LEAST_SETTLE_S) if self.settle_s is None else self.settle_s

    @property
    def extend_every_s(self) -> float:
        """Returns the interval between extensions. It is a third of the lease at most, so that two may fail before the lease is lost."""
        return min(60.0, self.lease_s / 3)
