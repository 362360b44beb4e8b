"""Requests between managers and gates.

What is said about jobs is document 002's (`jobs.messages`); here it travels in batches, so that a hundred thousand jobs are not a hundred
thousand requests. Each may be repeated: a lost answer costs a retry and nothing else.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from tenure import bounds as b
from tenure.control.messages.tokens import CallerBounds
from tenure.control.messages.wire import Reply, Request
from tenure.health.overload import OverloadState
from tenure.jobs.messages import (
    JobGlobalCancel,
    JobGlobalTimeout,
    JobLeaderTransfer,
    JobOrder,
    JobProgressReport,
    JobReportAck,
    JobStatusCorrection,
    JobStatusQuery,
    JobTimeoutReport,
)
from tenure.jobs.model import JobSubmission

MOST_REPORTS = 400
"""Jobs in one batch of reports: at 300 ms for a round trip, more than a thousand a second from each datacenter."""
MOST_WORDS = 200
MOST_BYTES = 524_288
"""The most bytes of submissions in one request; a single one may be as large as a submission may be."""

GateWord = JobGlobalTimeout | JobGlobalCancel | JobStatusQuery | JobOrder
DatacenterWord = JobProgressReport | JobTimeoutReport | JobLeaderTransfer


class TellDatacenter(Request, frozen=True, kw_only=True, tag="tell_datacenter"):
    """A gate's submissions, decisions and questions for one datacenter. Its leader only."""

    datacenter: b.DatacenterName
    """Whom it is for: another one refuses it."""
    submissions: Annotated[tuple[JobSubmission, ...], b.each_alone(0, 1_000)] = ()
    words: Annotated[tuple[GateWord, ...], b.each_alone(0, 1_000)] = ()


class DatacenterSaid(Reply, frozen=True, kw_only=True, tag="datacenter_said"):
    """Where each job stands now: a report for a submission, a correction for a decision, a question or a refused submission."""

    datacenter: str
    reports: tuple[JobProgressReport | JobTimeoutReport, ...] = ()
    corrections: tuple[JobStatusCorrection, ...] = ()


class TellGate(Request, frozen=True, kw_only=True, tag="tell_gate"):
    """A datacenter's reports. Gates that do not lead pass them on."""

    datacenter: b.DatacenterName
    manager: b.NodeName
    words: Annotated[tuple[DatacenterWord, ...], b.each_alone(0, 1_000)]


class GateHeard(Reply, frozen=True, kw_only=True, tag="gate_heard"):
    """The answers to reports, for those that have one."""

    acks: tuple[JobReportAck, ...] = ()


class AskDatacenter(Request, frozen=True, kw_only=True, tag="datacenter"):
    """A gate's probe of one manager."""


class DatacenterView(Reply, frozen=True, kw_only=True, tag="datacenter_view"):
    """How a manager is, and how much its datacenter could take (document 001, the three signals of a manager)."""

    datacenter: str
    manager_id: str
    leads: bool
    leader: str = ""
    """Where its leader listens, as far as it knows; empty where nobody leads."""
    has_quorum: bool = False
    accepting_jobs: bool = True
    closed: str = ""
    """Why it accepts no new jobs; empty while it does."""
    active_worker_count: int = 0
    """Workers that take work."""
    drained_worker_count: int = 0
    """Workers that operators drained."""
    available_capacity: int = 0
    jobs_accepted_last_interval: int = 0
    workflows_dispatched_last_interval: int = 0
    expected_throughput: float = 0.0
    workflows_waiting: int = 0


class AskGate(Request, frozen=True, kw_only=True, tag="gate"):
    """How a gate is, and what it sees of the datacenters. Gates probe their peers with it."""


class ManagerVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A gate's verdict on one manager of a datacenter (document 001)."""

    address: str
    verdict: str
    """route, investigate, drain or evict; unknown before the first probe."""
    reason: str


class PlaceView(msgspec.Struct, frozen=True, kw_only=True):
    """One datacenter, as a gate sees it."""

    name: str
    health: str
    """HEALTHY, BUSY, DEGRADED, UNHEALTHY, or UNKNOWN where nothing was heard yet."""
    reason: str
    rule: str = ""
    """The reason as one of a closed list: for counters and alarms."""
    capacity: int = 0
    latency_ms: float = 0.0
    held: bool = False
    """The class from before: several datacenters fail at once, so our own link is suspected first."""
    managers: tuple[ManagerVerdict, ...] = ()


class GateView(Reply, frozen=True, kw_only=True, tag="gate_view"):
    """How a gate is (document 001, the three signals of a gate), and what it sees."""

    gate_id: str
    leads: bool
    epoch: int
    leader: str = ""
    connected_dc_count: int = 0
    overload_state: OverloadState = OverloadState.HEALTHY
    overload_reason: str = ""
    jobs_forwarded_last_interval: int = 0
    stats_aggregated_last_interval: int = 0
    expected_forward_rate: float = 0.0
    jobs_waiting: int = 0
    fit_to_lead: bool = False
    datacenters: tuple[PlaceView, ...] = ()
    link_suspect: bool = False
    jobs_tracked: int = 0


class Forward(Request, frozen=True, kw_only=True, tag="forward"):
    """A request that came to a gate: passed on to the gate that leads, or to the datacenter that it is about. Never passed on twice."""

    name: b.OperationName
    body: msgspec.Raw
    by: b.AnyNameOrNone = ""
    wait_s: b.WaitSeconds = 0.0
    """The seconds for which the request inside asks its answer to be held back."""
    proof: b.TokenOrNone = ""
    """The token that the request's caller showed to the gate. The node that answers checks it: a gate's own token may not do what operators may."""
    bounds: Annotated[tuple[CallerBounds, ...], b.items(0, 8)] = ()
    """The bounds of that caller, as the gate knows them: they hold beside those of the proof."""
