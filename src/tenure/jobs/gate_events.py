"""Defines every event about jobs in a gate's journal. Each is a decision with its evidence, as in `events.py`."""

from __future__ import annotations

import msgspec

from tenure.jobs.events import Event, JobEvent, ManagerEvent
from tenure.jobs.model import Address, JobSubmission
from tenure.jobs.states import JobState, TimeoutReason


class GateElected(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The first event of a gate that leads its cluster. Stuck clocks restart with it."""

    epoch: int
    gate: str


class GateJobAccepted(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    submission: JobSubmission
    target_datacenters: tuple[str, ...]
    digest: str


class GateJobRebuilt(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A report came for a job that this gate does not know, because its journal was lost. The event holds what the report states."""

    submitted_at: float
    """By the gate's own clock: now, less the elapsed seconds that the report states."""
    timeout_seconds: float
    target_datacenters: tuple[str, ...]


class DatacenterReported(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A datacenter's report, as far as it changes what the gate knows."""

    datacenter: str
    token: int
    status: JobState
    progressed: bool = False
    extensions: float = 0.0
    manager_addr: Address | None = None
    reason: str = ""
    ended_by_gate: bool = False
    gate_epoch: int = 0
    """The highest gate epoch that the datacenter had seen when it sent this."""


class DatacenterTimedOut(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A timeout report that counts: its token is not stale, and the datacenter was not terminal."""

    datacenter: str
    token: int
    reason: TimeoutReason
    extensions: float = 0.0
    manager_addr: Address | None = None
    gate_epoch: int = 0


class GlobalDecisionMade(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A decision of the gate. It is final, and the gate sends it to every datacenter until each is terminal."""

    state: JobState
    reason: str
    from_reports: bool = False


class GateJobEnded(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Every datacenter is terminal."""

    state: JobState
    reason: str


class GateTombstoneSet(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A job that this gate does not know was cancelled."""

    reason: str


class GateJobArchived(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    forget: tuple[str, ...] = ()


class GateForgotten(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    until: float


GateEvent = (
    GateElected
    | GateJobAccepted
    | GateJobRebuilt
    | DatacenterReported
    | DatacenterTimedOut
    | GlobalDecisionMade
    | GateJobEnded
    | GateTombstoneSet
    | GateJobArchived
    | GateForgotten
)

_decoder: msgspec.json.Decoder[GateEvent] = msgspec.json.Decoder(GateEvent)


def decode_gate_event(encoded: bytes) -> GateEvent:
    """Returns the event that was written; raises `msgspec.ValidationError` for anything else."""
    return _decoder.decode(encoded)


_any_decoder: msgspec.json.Decoder[ManagerEvent | GateEvent] = msgspec.json.Decoder(ManagerEvent | GateEvent)


def decode_any_event(encoded: bytes) -> ManagerEvent | GateEvent:
    """Returns an event of a manager's journal or of a gate's, for a reader that does not know whose it is."""
    return _any_decoder.decode(encoded)
