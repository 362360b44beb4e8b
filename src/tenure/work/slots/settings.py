"""How a worker's slots behave. Few numbers; what is not given is derived, and the ladder must stand upright."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tenure.errors import ConfigurationError, LimitError


@dataclass(frozen=True, slots=True)
class SlotSettings:
    """Settings of a supervisor and its slots; all times in seconds."""

    queue: str = "work"
    """The mailbox to serve."""
    more_queues: tuple[str, ...] = ()
    """Others to serve beside it, in the order in which they are looked at: see `lanes`."""
    slots: int = 2
    concurrency: int = 1
    """How many async workflows one slot runs at once."""
    lease_s: float = 60.0
    """How long work that shows no sign of life is kept from others. It has nothing to do with how long work may run."""
    claim_s: float = 10.0
    """The short lease of work that was claimed and has not been seen running."""
    stall_s: float = 300.0
    """The longest silence between beats, for workflows that do not set their own."""
    grace_s: float = 5.0
    """Between a request to stop and SIGKILL."""
    wait_s: float = 20.0
    drain: Literal["finish", "handover"] = "finish"
    """What SIGTERM does to running work: let it finish, or stop it so that another worker goes on from its checkpoint."""
    drain_timeout_s: float = 3_600.0
    tick_s: float = 0.1
    memory_limit_mb: int | None = None
    """Address space of one slot process."""
    courier: str = ""
    """`module:function` that connects a slot with the managers, for workflows that submit jobs; empty: they cannot."""
    token: str = field(default="", repr=False)
    """Of the datacenter; goes to slots over their control line."""

    def __post_init__(self) -> None:
        for name in ("lease_s", "claim_s", "stall_s", "grace_s", "wait_s", "drain_timeout_s", "tick_s"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise LimitError(name, value, "above 0 seconds")
        if not 1 <= self.slots <= 512:
            raise LimitError("slots", self.slots, "between 1 and 512")
        if not 1 <= self.concurrency <= 1_000:
            raise LimitError("concurrency", self.concurrency, "between 1 and 1,000")
        if self.memory_limit_mb is not None and self.memory_limit_mb < 64:
            raise LimitError("memory_limit_mb", self.memory_limit_mb, "64 or more, or None")
        if self.lease_s < 10 * self.tick_s:
            raise ConfigurationError(
                f"lease_s {self.lease_s:g} is under ten ticks of {self.tick_s:g} s: beats could not renew it in time",
                remedy=f"Set lease_s to {10 * self.tick_s:g} or more, or tick_s lower",
            )

    @property
    def lanes(self) -> tuple[str, ...]:
        """All mailboxes that are served, each once; earlier ones go first, later ones never starve (decision 0146)."""
        return tuple(dict.fromkeys((self.queue, *self.more_queues)))

    @property
    def extend_every_s(self) -> float:
        """Extension interval < lease, always."""
        return min(60.0, self.lease_s / 3)
